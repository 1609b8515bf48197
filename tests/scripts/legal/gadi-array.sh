#!/bin/bash
#PBS -P ab12
#PBS -q normal
#PBS -l ncpus=4
#PBS -l mem=16GB
#PBS -l jobfs=10GB
#PBS -l walltime=02:00:00
#PBS -l storage=gdata/ab12
module load python3/3.11.0 parallel
cd $PBS_O_WORKDIR
source venv/bin/activate
# one line of configs.txt a task
while IFS=$'\t' read -r name lr seed; do
    [[ $name == \#* ]] && continue
    out="runs/${name}_${seed}"
    mkdir -p "$out"
    python3 fit.py --name "$name" --lr "$lr" --seed "$seed" --out "$out" > "$out/log.txt" 2>&1 &
    while (( $(jobs -rp | wc -l) >= 4 )); do
        wait -n
    done
done < configs.txt
wait
python3 - <<'PY'
import glob
for f in glob.glob('runs/*/log.txt'):
    print("it's", f)  # see /g/data/xx11/<anything>
PY
