#!/bin/sh
#PBS -N test
#PBS -q workq
#PBS -l select=2:ncpus=8:mpiprocs=2:ngpus=2:mem=32gb
#PBS -l place=scatter
#PBS -l walltime=01:00:00
#PBS -o out.log
#PBS -e err.log
#PBS -S /bin/bash
cd "$PBS_O_WORKDIR" || exit 1
. ./venv/bin/activate
mpiexec -n 4 --hostfile $PBS_NODEFILE python train.py --seed 1
