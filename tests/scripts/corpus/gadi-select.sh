#!/bin/bash
#PBS -N resnet
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l select=2:ncpus=48:ngpus=4:mem=190gb
#PBS -l walltime=12:00:00
#PBS -l wd

module load pytorch/1.10.0
mpirun -np 8 --map-by ppr:4:node python train.py --batch 256
