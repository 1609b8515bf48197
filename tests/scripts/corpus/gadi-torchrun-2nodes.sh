#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=96
#PBS -l ngpus=8
#PBS -l mem=760GB
#PBS -l jobfs=800GB
#PBS -l walltime=10:00:00
#PBS -l storage=gdata/dk92+scratch/ab12
#PBS -l wd
#PBS -N torchrun_test
#PBS -j oe

module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/23.10

set -e
NNODES=$(sort -u $PBS_NODEFILE | wc -l)
PROC_PER_NODE=$((PBS_NGPUS / NNODES))
MASTER_ADDR=$(head -n 1 $PBS_NODEFILE)

for inode in $(seq 0 48 95); do
    pbsdsh -n $inode -- bash -l -c "cd $PBS_O_WORKDIR && module use /g/data/dk92/apps/Modules/modulefiles && module load NCI-ai-ml/23.10 && torchrun --nnodes=$NNODES --nproc_per_node=$PROC_PER_NODE --rdzv_id=$PBS_JOBID --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29400 train.py --epochs 50" &
done
wait
