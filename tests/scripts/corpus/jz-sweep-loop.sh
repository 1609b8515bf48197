#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1 --ntasks-per-node=1 --gres=gpu:1 --cpus-per-task=10
#SBATCH --time=20:00:00 --hint=nomultithread
module purge; module load pytorch-gpu/py3/2.3.0
for lr in 0.1 0.01; do
  srun python train.py --lr $lr
done
