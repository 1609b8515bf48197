#!/bin/bash
#PBS -P ab12
#PBS -q normal
#PBS -l ncpus=1,mem=4GB,walltime=01:00:00,jobfs=1GB
#PBS -l wd
for lr in 0.1 0.01 0.001; do
cat > job_$lr.sh <<EOF
#!/bin/bash
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1
python train.py --lr $lr
EOF
qsub job_$lr.sh
done
