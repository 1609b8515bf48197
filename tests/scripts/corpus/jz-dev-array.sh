#!/bin/bash
#SBATCH -A abc@h100 -C h100 --qos=qos_gpu_h100-dev
#SBATCH --array=1-40
#SBATCH --nodes=1 --ntasks-per-node=1 --gres=gpu:1 --cpus-per-task=24
#SBATCH --time=02:00:00 --hint=nomultithread
#SBATCH --output=out/%A_%a.out
module load arch/h100 pytorch-gpu/py3/2.8.0
LR=$(sed -n "${SLURM_ARRAY_TASK_ID}p" lrs.txt)
srun python sweep.py --lr $LR
