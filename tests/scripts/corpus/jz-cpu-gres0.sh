#!/bin/bash
#SBATCH --account=abc@cpu
#SBATCH --nodes=1
#SBATCH --ntasks=40
#SBATCH --gres=gpu:0
#SBATCH --time=01:00:00
#SBATCH --hint=nomultithread
module load intel-all
srun ./simulation
idrquota -m
