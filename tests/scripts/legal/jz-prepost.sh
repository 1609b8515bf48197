#!/bin/bash
#SBATCH --job-name=install
#SBATCH --partition=prepost
#SBATCH --account=abc@v100
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --hint=nomultithread
#SBATCH --time=02:00:00
module purge
module load arch/a100
module load pytorch-gpu/py3/2.8.0
export HOME=$WORK/home
pip install --user --no-cache-dir flash-attn
huggingface-cli download gpt2 --local-dir $SCRATCH/models/gpt2
git clone https://example.org/repo.git $WORK/repo || (cd $WORK/repo && git pull)
