#!/bin/bash
#PBS -P ab12
#PBS -q normal
#PBS -J 1-20
#PBS -r y
#PBS -l ncpus=4
#PBS -l mem=16GB
#PBS -l jobfs=10GB
#PBS -l walltime=01:00:00
#PBS -l wd
python3 process.py --chunk $PBS_ARRAY_INDEX
