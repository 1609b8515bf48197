#!/bin/bash -l
#PBS -P ab12
#PBS -q dgxa100
#PBS -l ncpus=128
#PBS -l ngpus=8
#PBS -l mem=1000GB
#PBS -l jobfs=2TB
#PBS -l walltime=24:00:00
#PBS -l storage=scratch/ab12+gdata/dk92
#PBS -W umask=027
#PBS -l wd

module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/23.05
export OMP_NUM_THREADS=16
export WANDB_MODE=offline
accelerate launch --multi_gpu --num_processes 8 --mixed_precision bf16 finetune.py \
    --model /scratch/ab12/models/llama \
    --per_device_batch 4
