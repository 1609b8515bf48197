#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
resubmit() {
  echo "signal at $(date)"
  kill -USR1 "$child"
  wait "$child"
  scontrol requeue "$SLURM_JOB_ID"
}
trap resubmit USR1
module load pytorch-gpu/py3/2.8.0
srun python train.py --resume auto &
child=$!
wait "$child"
