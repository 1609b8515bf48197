#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=96,ngpus=8,mem=760GB,walltime=2:00:00,jobfs=400GB
#PBS -l wd
NNODES=2
for i in $(seq 0 $((NNODES-1))); do
  pbsdsh -n $i -- $PBS_O_WORKDIR/launch.sh $i $NNODES &
done
wait
