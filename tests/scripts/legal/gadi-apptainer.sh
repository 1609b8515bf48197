#!/bin/bash
#PBS -N infer
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ngpus=1,ncpus=12,mem=90GB,jobfs=50GB
#PBS -l walltime=06:00:00
#PBS -l storage=gdata/ab12+scratch/ab12
#PBS -l wd
#PBS -m abe

module load singularity
IMG=/g/data/ab12/images/vllm.sif
BIND="/g/data/ab12,/scratch/ab12"
export SINGULARITY_CACHEDIR=$PBS_JOBFS

singularity exec --nv --bind "$BIND" "$IMG" python -m vllm.entrypoints.openai.api_server \
    --model /g/data/ab12/models/m --port 8000 > server.log 2>&1 &
SERVER=$!
for try in {1..60}; do
    curl -sf http://localhost:8000/health && break
    sleep 10
done
singularity exec "$IMG" python client.py --url http://127.0.0.1:8000/v1 --input prompts.jsonl
kill "$SERVER"
