#!/bin/bash
#PBS -N nf-head
#PBS -P ab12
#PBS -q copyq
#PBS -l ncpus=1,mem=8GB,jobfs=10GB,walltime=10:00:00
#PBS -l storage=gdata/ab12+scratch/ab12
#PBS -l wd
module load nextflow/24.04.1 singularity
export NXF_SINGULARITY_CACHEDIR=/scratch/$PROJECT/$USER/nxf_cache
export NXF_HOME=/scratch/${PROJECT}/${USER}/.nextflow
nextflow run nf-core/rnaseq -r 3.14.0 -profile singularity,nci_gadi \
    --input samplesheet.csv --outdir results \
    --genome GRCh38 -resume
