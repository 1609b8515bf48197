#!/usr/bin/env bash
#SBATCH -J sweep
#SBATCH -A abc@v100
#SBATCH -N 1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH -c 10
#SBATCH --hint=nomultithread
#SBATCH -t 05:00:00
#SBATCH --array=0-11%4
#SBATCH -o slurm-%A_%a.out
set -o errexit -o nounset -o pipefail
lrs=(1e-3 3e-4 1e-4)
seeds=(0 1 2 3)
lr=${lrs[$((SLURM_ARRAY_TASK_ID % ${#lrs[@]}))]}
seed=${seeds[$((SLURM_ARRAY_TASK_ID / ${#lrs[@]}))]}
declare -A extra=([0]="--warmup 100" [1]="--warmup 0")
args=(--lr "$lr" --seed "$seed")
if ((seed % 2)); then args+=(--ema); fi
[[ -n ${extra[$seed]:-} ]] && read -ra more <<< "${extra[$seed]}" && args+=("${more[@]}")
module load pytorch-gpu/py3/2.8.0
cp -r "$WORK/data" "$JOBSCRATCH/"
srun python train.py "${args[@]}" hydra.run.dir="$SCRATCH/sweep/lr${lr}_s${seed}" \
  'trainer.callbacks=[checkpoint,early_stopping]'
