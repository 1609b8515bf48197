#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,mem=90GB,jobfs=50GB
#PBS -l walltime=2:00:00
#PBS -l wd
module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/24.08
export DATA_DIR=/g/data/wb00/ImageNet/ILSVRC2012/raw-data
OUT=/scratch/xy34/alice/out
mkdir -p $OUT
python train.py --data $DATA_DIR --out $OUT
