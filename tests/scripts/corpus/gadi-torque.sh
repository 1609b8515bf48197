#!/bin/bash
#PBS -N old_job
#PBS -P ab12
#PBS -q normal
#PBS -l nodes=2:ppn=48
#PBS -l walltime=5:00:00
#PBS -l mem=190gb
cd $PBS_O_WORKDIR
NP=`wc -l < $PBS_NODEFILE`
mpirun -np $NP ./solver input.dat
