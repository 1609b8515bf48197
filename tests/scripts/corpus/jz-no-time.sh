#!/bin/bash
#SBATCH --job-name=interactive
#SBATCH -A abc@v100
#SBATCH -N1 -n1 --gres=gpu:1 -c10
#SBATCH --hint=nomultithread
module load pytorch-gpu/py3/2.3.0
srun python train.py
