#!/bin/bash
#SBATCH --account=abc@a100
#SBATCH -C a100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
#SBATCH --signal=B:USR1@120
module purge
module load arch/a100 pytorch-gpu/py3/2.3.0
export MASTER_ADDR=localhost
export MASTER_PORT=12355
export WANDB_MODE=online
srun python train.py
