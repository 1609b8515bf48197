#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=96,ngpus=8,mem=380GB,walltime=2:00:00,jobfs=400GB
#PBS -l wd
NODES=$(cat $PBS_NODEFILE | wc -l)
export MASTER_ADDR=$(head -1 $PBS_NODEFILE)
export NCPUS=12
pbsdsh -u -- python $PBS_O_WORKDIR/train.py --num_nodes 2 --devices 4
