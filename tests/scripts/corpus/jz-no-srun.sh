#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --gres=gpu:4
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=02:00:00
module purge
conda deactivate
module load pytorch-gpu/py3/2.3.0
python train.py
