#!/bin/bash
#SBATCH -J big
#SBATCH -A abc@a100
#SBATCH -C a100
#SBATCH --qos=qos_gpu-t4
#SBATCH -N 2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH -c 8
#SBATCH -t 100:00:00
#SBATCH --hint=nomultithread
module purge
module load pytorch-gpu/py3/2.3.0
module load arch/a100
srun python train.py
