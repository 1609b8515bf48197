#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1 --ntasks-per-node=4 --gres=gpu:4 --cpus-per-task=10
#SBATCH --time=01:00:00 --hint=nomultithread
module load pytorch-gpu/py3/2.3.0
srun python train.py
srun python evaluate.py
