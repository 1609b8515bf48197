#!/bin/bash
#PBS -P ab12
#PBS -q gpuhopper
#PBS -l ncpus=96,ngpus=8,mem=2000GB,jobfs=400GB,walltime=24:00:00
#PBS -l storage=gdata/ab12
#PBS -l wd
MASTER=$(head -n1 $PBS_NODEFILE)
RANK_=0
for host in $(uniq $PBS_NODEFILE); do
  ssh $host "cd $PBS_O_WORKDIR; source /g/data/ab12/env/bin/activate; torchrun --nnodes 2 --nproc_per_node 4 --master_addr $MASTER --master_port 29500 train.py" &
done
wait
