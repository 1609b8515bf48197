#!/bin/bash
#SBATCH --job-name=dl
#SBATCH --account=abc@cpu
#SBATCH --partition=prepost
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --time=10:00:00
#SBATCH --hint=nomultithread
cd $STORE/data
wget https://example.org/data.tar
tar xf data.tar
