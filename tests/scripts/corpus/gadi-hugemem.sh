#!/bin/bash
#PBS -P ab12
#PBS -q hugemem
#PBS -l ncpus=48
#PBS -l mem=1400GB
#PBS -l jobfs=400GB
#PBS -l walltime=48:00:00
#PBS -l storage=scratch/ab12+gdata/ab12
#PBS -l wd
#PBS -j oe
#PBS -m e
module load R/4.3.1
Rscript analysis.R /g/data/ab12/input.csv
