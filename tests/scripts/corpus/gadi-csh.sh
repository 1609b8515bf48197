#!/bin/csh
#PBS -P ab12
#PBS -q normal
#PBS -l ncpus=48,mem=190GB,walltime=10:00:00,jobfs=1GB
#PBS -l wd
setenv OMP_NUM_THREADS 48
if ( -e run.log ) then
  rm run.log
endif
./model >& run.log
