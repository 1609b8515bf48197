#!/bin/bash
#PBS -q copyq
#PBS -P ab12
#PBS -l ncpus=4
#PBS -l walltime=24:00:00
#PBS -l mem=16GB
#PBS -l wd
rclone copy remote:data ./data
