#!/bin/bash
#SBATCH --account=abc@h100
#SBATCH -C h100
#SBATCH --nodes=2 --ntasks-per-node=4 --gres=gpu:4 --cpus-per-task=24
#SBATCH --time=0-20 --hint=nomultithread
module purge
module load singularity
srun singularity exec --nv $SINGULARITY_ALLOWED_DIR/torch.sif python train.py --data $DSDIR/imagenet
