#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=48
#PBS -l ngpus=4
#PBS -l mem=380GB
#PBS -l jobfs=100GB
#PBS -l walltime=12:00:00
#PBS -l storage=gdata/ab12
#PBS -N finetune

cd "$PBS_O_WORKDIR" || exit 1

function print_help {
  echo "Usage: $0 [-m MODEL] [-d DATA] [-h]"
  echo "  -m  path to the model, e.g. /g/data/wb00/models/<name>"
  echo "  -d  path to the data"
}

MODEL=llama
DATA=/g/data/ab12/corpus
while getopts ":m:d:h" opt; do
  case ${opt} in
    m ) MODEL=$OPTARG ;;
    d ) DATA=$OPTARG ;;
    h ) print_help; exit 0 ;;
    \? ) echo "Invalid option: -$OPTARG" 1>&2; exit 1 ;;
    : ) echo "Option -$OPTARG requires an argument" 1>&2; exit 1 ;;
  esac
done
shift $((OPTIND - 1))

source /g/data/ab12/miniconda3/etc/profile.d/conda.sh
conda activate llm
export HF_HOME=/g/data/ab12/hf HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
export WANDB_MODE=offline
export OMP_NUM_THREADS=$((PBS_NCPUS / PBS_NGPUS))

GPUS=$(nvidia-smi --list-gpus | wc -l)
torchrun --standalone --nnodes=1 --nproc_per_node=$GPUS finetune.py \
  --model "$MODEL" --data "$DATA" \
  --lr 2e-5 \
  "$@" 2>&1 | tee "logs/${PBS_JOBID}.log"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then echo "failed: $status"; fi
exit $status
