#!/bin/bash
#SBATCH --job-name=test
#SBATCH --partition=gpu
#SBATCH --gpus=a100:2
#SBATCH --mem-per-cpu=4G
#SBATCH --cpus-per-task=8
#SBATCH --time=90
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=bob@uni.example
#SBATCH --exclude=node[01-03]
#SBATCH --reservation="my class"
module load anaconda/2023
eval "$(conda shell.bash hook)"
conda activate base
export CUDA_VISIBLE_DEVICES=0,1
deepspeed --num_gpus 2 train.py --deepspeed ds_config.json
