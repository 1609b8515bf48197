#!/bin/bash
#PBS -q gpuvolta-exec
#PBS -P ab12
#PBS -l ncpus=48 -l ngpus=4 -l mem=380GB
#PBS -l walltime=48:00:00,jobfs=200GB
#PBS -V
cd $PBS_O_WORKDIR
module load pytorch
torchrun --standalone --nproc_per_node=4 train.py --lr 0.1
