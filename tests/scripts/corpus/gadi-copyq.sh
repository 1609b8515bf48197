#!/bin/bash
#PBS -q copyq
#PBS -P ab12
#PBS -l ncpus=1
#PBS -l mem=4GB
#PBS -l walltime=10:00:00
#PBS -l storage=gdata/ab12
#PBS -l wd
cd /g/data/ab12/datasets
wget -c https://image-net.org/data/ILSVRC/2012/ILSVRC2012_img_train.tar
