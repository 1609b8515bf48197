#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
module load pytorch
#PBS -l ncpus=12,ngpus=1
#PBS -l mem=90GB
#PBS -l walltime=10:00:00
cd $PBS_O_WORKDIR
python train.py
