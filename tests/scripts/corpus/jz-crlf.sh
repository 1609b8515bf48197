#!/bin/bash
#SBATCH -A abc@v100
#SBATCH --nodes=1 --ntasks-per-node=1 --gres=gpu:1 --cpus-per-task=10
#SBATCH --time=01:00:00 --hint=nomultithread
module load pytorch-gpu/py3/2.3.0
srun python train.py
