#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ngpus=4
#PBS -l ncpus=16
#PBS -l mem=64GB
#PBS -l jobfs=10GB
#PBS -l walltime=04:00:00
#PBS -l wd
module load pytorch
python train.py
