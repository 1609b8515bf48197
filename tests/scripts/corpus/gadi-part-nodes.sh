#!/bin/bash
#PBS -P ab12
#PBS -q normal
#PBS -l ncpus=80
#PBS -l mem=300GB
#PBS -l jobfs=10GB
#PBS -l walltime=10:00:00
#PBS -l wd
module load openmpi/4.1.4
mpirun ./model.exe
