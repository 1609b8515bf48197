#!/usr/bin/env bash
#SBATCH -p gpu_p13
#SBATCH --account=abc@v100 --time=1-12:00:00 --qos=qos_gpu-t4
#SBATCH --nodes=1 --ntasks-per-node=4 --gres=gpu:4 --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --mem=128G
#SBATCH --requeue --open-mode=append
#SBATCH --signal=SIGUSR1@90
source ~/.bashrc
conda activate lightning
export PYTHONFAULTHANDLER=1 NCCL_DEBUG=INFO
python -c "import torch; print(torch.__version__)"
time srun --kill-on-bad-exit=1 --cpu-bind=cores python train.py fit --trainer.devices=4 --trainer.num_nodes=1
