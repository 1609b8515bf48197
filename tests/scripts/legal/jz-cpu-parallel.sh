#!/bin/bash
#SBATCH --account=abc@cpu
#SBATCH --nodes=1
#SBATCH --ntasks=40
#SBATCH --hint=nomultithread
#SBATCH --time=03:00:00
module purge && module load gnu-parallel
export OMP_NUM_THREADS=1
srun="srun --exclusive -N1 -n1"
find inputs -name '*.nc' | sort | parallel -j "$SLURM_NTASKS" --joblog tasks.log "$srun ./process {} > logs/{/.}.log"
awk -F'\t' '$7 != 0 {print $NF}' tasks.log | while read -r failed; do echo "failed: $failed"; done
tar czf "$SCRATCH/results_$(date +%Y%m%d).tgz" outputs/ && rm -rf outputs
