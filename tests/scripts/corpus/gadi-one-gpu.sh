#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -lncpus=12,ngpus=1,mem=90GB,walltime=24:00:00,jobfs=100GB
#PBS -lstorage=gdata/ab12+scratch/ab12
#PBS -lwd
#PBS -M alice@uni.edu.au -m abe

module load cuda/12.0.0 python3/3.11.0
source /g/data/ab12/venvs/torch/bin/activate

python3 train.py --config configs/base.yaml --out /scratch/ab12/alice/run1 > run1.log 2>&1
