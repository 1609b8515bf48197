#!/bin/bash
#SBATCH --job-name=lightning          # nom du job
#SBATCH --account=abc@v100
#SBATCH --nodes=1                     # un noeud
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=20:00:00
#SBATCH --output=%x_%j.out
#SBATCH --error=%x_%j.out

module purge
module load pytorch-gpu/py3/2.8.0
set -x
srun python -u train.py --epochs 90
