#!/bin/bash
#PBS -P $PROJECT
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,mem=90GB,jobfs=100GB,walltime=01:00:00
#PBS -o logs/run_$PBS_JOBID.log
#PBS -v LR=0.1,GPUS=0,1,NCPUS=12
#PBS -l wd
python train.py --lr $LR
