#!/bin/bash
#SBATCH --account=changeme@gpu
#SBATCH --time=HH:MM:SS
#SBATCH --nodes=<N>
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --mail-user=you@example.com
#SBATCH --ntask-per-node=4
srun python train.py
