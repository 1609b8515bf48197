#!/bin/bash
#PBS -P ab12            # my project
#PBS -q gpuvolta        # V100s
#PBS -l ncpus=12        # must be 12 per GPU
#PBS -l ngpus=1
#PBS -l mem=90GB
#PBS -l jobfs=100GB
#PBS -l walltime=1:00:00 # enough?
#PBS -l wd
module load pytorch
python train.py
