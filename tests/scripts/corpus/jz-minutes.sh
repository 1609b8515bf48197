#!/bin/bash
#SBATCH -A abc@v100
#SBATCH --nodes 1
#SBATCH --ntasks-per-node 1
#SBATCH --gres gpu:1
#SBATCH --cpus-per-task 10
#SBATCH --hint nomultithread
#SBATCH -t 20:00
#SBATCH --output $WORK/logs/%j.out
module load pytorch-gpu/py3/2.3.0
srun python train.py --precision bf16
