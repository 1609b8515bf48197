#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1 --ntasks-per-node=1 --gres=gpu:1 --cpus-per-task=10
#SBATCH --time=01:00:00 --hint=nomultithread
module load pytorch-gpu/py3/2.3.0
if [ "$1" == "test" ]; then
  srun python test.py
else
  srun python train.py
fi
