#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,
#PBS -l mem=96
#PBS -l walltime=00:48:00:00
#PBS -l jobfs=1.5GB
#PBS -l wd
python train.py
