#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=144
#PBS -l ngpus=12
#PBS -l mem=1140GB
#PBS -l jobfs=600GB
#PBS -l walltime=48:00:00
#PBS -l wd
module load pytorch
mpirun -np 12 --map-by ppr:4:node python train.py
