#!/bin/bash
#SBATCH --job-name=tr1-13B
#SBATCH --account=six@a100
#SBATCH --constraint=a100
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --hint=nomultithread
#SBATCH --gres=gpu:8
#SBATCH --time=20:00:00
#SBATCH --output=%x-%j.out

set -x -e
source $WORK/start-prod
echo "START TIME: $(date)"

MEGATRON=$WORK/code/Megatron-DeepSpeed
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
MASTER_PORT=6000

config_json="./ds_config.$SLURM_JOBID.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": { "stage": 1 },
  "note": "see http://example.org/<page>"
}
EOT

GPT_ARGS=" \
    --num-layers 40 \
    --hidden-size 5120 \
    --micro-batch-size 1 \
    --fp16 \
    "
DATA_ARGS="--save $SCRATCH/checkpoints --data-path $SCRATCH/data/meg_text_document"

export LAUNCHER="python -u -m torch.distributed.run \
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT \
    --rdzv_backend c10d \
    --max_restarts 0 \
    --tee 3 \
    "
export CMD=" \
    $MEGATRON/pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    --deepspeed --deepspeed_config ${config_json} \
    "
clear() { :; }
echo $CMD
# to debug - add echo (it exits and prints what it would have launched)
srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee -a main_log.txt
echo "END TIME: $(date)"
