#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --account=abc@v100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --time=02:00:00
#SBATCH --hint=nomultithread
module load pytorch-gpu/py3/2.1.1
export NODE_RANK=$SLURM_NODEID
srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$(hostname) --master_port=29500 train.py
