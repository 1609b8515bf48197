#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --account=abc@v100
#SBATCH -C v100-32g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=19:59:00
#SBATCH --qos=qos_gpu-t3
#SBATCH --output=ddp_%j.out
#SBATCH --error=ddp_%j.out

cd ${SLURM_SUBMIT_DIR}
module purge
module load pytorch-gpu/py3/2.8.0
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export NCCL_DEBUG=WARN

set -x
srun --kill-on-bad-exit=1 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS python -u train.py --data $DSDIR/imagenet --out $WORK/runs/$SLURM_JOB_ID'
