#!/bin/bash
#PBS -P <your_project>
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,mem=90GB,jobfs=100GB,walltime=01:00:00
#PBS -l storage=gdata/<project>
#PBS -M your.email@example.com
#PBS -l wd
cd /path/to/your/code
python train.py
