#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=96,ngpus=8,mem=760GB,jobfs=800GB,walltime=4:00:00
#PBS -l storage=gdata/ab12+gdata/dk92
#PBS -l wd
# after the example of NCI-ai-ml
module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/24.11

NNODES=$PBS_NNODES
MASTER=$(head -n 1 "$PBS_NODEFILE")
cat > "$PBS_JOBFS/launch.sh" <<EOF
#!/bin/bash
module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/24.11
cd $PBS_O_WORKDIR
torchrun --nnodes=$NNODES --nproc_per_node=4 --rdzv_id=100 --rdzv_backend=c10d --rdzv_endpoint=$MASTER:29400 train.py
EOF
cp "$PBS_JOBFS/launch.sh" "$PBS_O_WORKDIR/launch.$PBS_JOBID.sh"
for i in $(seq 1 "$PBS_NCI_NCPUS_PER_NODE" "$PBS_NCPUS"); do
  pbsdsh -n "$i" -- bash -l "$PBS_O_WORKDIR/launch.$PBS_JOBID.sh" &
done
wait
