#!/bin/bash
#PBS -P ab12
#PBS -q copyq
#PBS -l ncpus=1,mem=4GB,jobfs=1GB,walltime=01:00:00,storage=scratch/ab12
#PBS -l wd
# fetches data, then writes and submits the real jobs
set -e
wget -nc -P data https://example.org/data.tar.gz
tar -xzf data/data.tar.gz -C data
for fold in 0 1 2 3 4; do
cat > job_$fold.pbs <<EOF
#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,mem=90GB,jobfs=10GB,walltime=24:00:00
#PBS -l storage=scratch/ab12+gdata/cd34
cd \$PBS_O_WORKDIR
python train.py --fold $fold --data /g/data/cd34/x --node \$SLURM_PROCID
EOF
qsub job_$fold.pbs
done
qsub <<'EOF'
#PBS -q normal
python collect.py --data /g/data/ef56/y
EOF
