#!/bin/bash
#SBATCH --account=abc@h100
#SBATCH -C h100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=96
#SBATCH --hint=nomultithread
#SBATCH --time=12:00:00
module purge
module load arch/h100
module load pytorch-gpu/py3/2.8.0
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)
export ACC="accelerate launch --num_machines $SLURM_NNODES --num_processes $((SLURM_NNODES * 4)) --rdzv_backend c10d --main_process_ip $MASTER_ADDR --main_process_port 6000 --mixed_precision bf16"
export SCRIPT="sft.py"
export SCRIPT_ARGS=" \
  --model $DSDIR/HuggingFace_Models/m \
  --output_dir $WORK/out/${SLURM_JOB_ID} "
srun bash -c "$ACC --machine_rank \$SLURM_PROCID $SCRIPT $SCRIPT_ARGS"
