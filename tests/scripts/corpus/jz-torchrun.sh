#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --account=abc@h100
#SBATCH --constraint=h100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=96
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
#SBATCH --output=logs/%x_%j.out

module purge
module load arch/h100
module load pytorch-gpu/py3/2.8.0

export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
export MASTER_PORT=15000

srun bash -c "torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 \
    --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT \
    --node_rank \$SLURM_PROCID train.py --config config.yaml"
