#!/bin/bash
#SBATCH -A abc@v100
 #SBATCH --time=10:00:00
# SBATCH --nodes=2
##SBATCH --mem=40G
#SBTACH --gres=gpu:4
#SBATCH --ntasks-per-node=4 --ntasks-per-node=2
#SBATCH --hint=nomultithread
srun python train.py
