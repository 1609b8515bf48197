#!/bin/bash
#SBATCH -A abc@v100 --time=1:00:00 --gres=gpu:1 -c 10 --hint=nomultithread
echo "start
srun python train.py
