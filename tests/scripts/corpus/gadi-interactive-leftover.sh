#!/bin/bash
#PBS -I
#PBS -q gpuvolta
#PBS -P ab12
#PBS -l walltime=00:05:00,ncpus=48,ngpus=4,mem=380GB,jobfs=200GB,storage=gdata/ab12,wd
#PBS -X
nvidia-smi
