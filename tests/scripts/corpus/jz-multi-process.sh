#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --partition=gpu_p2
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=24
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
#SBATCH --array=0-3%2
module purge
module load pytorch-gpu/py3/2.3.0
cd $WORK/project
srun python main.py --fold $SLURM_ARRAY_TASK_ID --out "$SCRATCH/run_${SLURM_ARRAY_JOB_ID}"
