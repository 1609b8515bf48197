#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=01:00:00
module purge
if [[ "$SLURM_JOB_PARTITION" == gpu_p5 ]]; then
  module load arch/a100
elif [[ "$SLURM_JOB_PARTITION" =~ ^gpu_p6 ]]; then
  module load arch/h100
fi
module load pytorch-gpu/py3/2.8.0
export HOME=$SCRATCH/home
export HF_HOME=$HOME/.cache/hf TORCH_HOME=~/.cache/torch
python -c "import torch; print(torch.__version__, torch.cuda.device_count())"
srun python -u train.py
