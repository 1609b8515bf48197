#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=12
#PBS -l ngpus=1
#PBS -l mem=64GB
#PBS -l jobfs=50GB
#PBS -l walltime=02:00:00
#PBS -l wd
module load python3/3.11.0
python3 -m venv $TMPDIR/env
source $TMPDIR/env/bin/activate
pip install --upgrade pip
pip install torch lightning
git clone https://github.com/me/project.git
cd project
python train.py
