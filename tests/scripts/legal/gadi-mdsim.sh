#!/bin/bash
#PBS -P ab12
#PBS -q normal
#PBS -l ncpus=96
#PBS -l mem=380GB
#PBS -l jobfs=800GB
#PBS -l walltime=24:00:00
#PBS -l storage=scratch/ab12+gdata/ab12
#PBS -l wd
#PBS -N md_prod
#PBS -j oe

# Molecular dynamics in chunks; restarts itself from the last checkpoint.
set -euo pipefail

usage() {
    cat <<USAGE
usage: qsub -v system=<system>,chunks=<n> md.sh
  system   name of a folder below /g/data/zz99/systems
  chunks   how many, see https://example.org/<wiki>
USAGE
    echo "example: cp /g/data/yy88/template.top . && wget https://example.org/x"
    exit 1
}

system=${system:-protein}
chunks=${chunks:-10}
[[ -n "$system" ]] || usage

module purge
module load gromacs/2023.1 openmpi/4.1.5

log() { printf '%s %s\n' "$(date +%FT%T)" "$*" | tee -a "md_${PBS_JOBID%%.*}.log"; }

cleanup() {
    local code=$?
    log "exit code $code"
    cp "$PBS_JOBFS"/*.cpt "$PBS_O_WORKDIR/restart/" 2>/dev/null || true
    exit "$code"
}
trap cleanup EXIT
trap 'log "terminated"; exit 143' TERM INT

mkdir -p restart out
case "$system" in
    protein|membrane) mdp=prod_npt.mdp ;;
    water)
        mdp=prod_nvt.mdp
        ;;
    -h|--help) usage ;;
    *) log "unknown system $system"; usage ;;
esac

for ((i = 1; i <= chunks; i++)); do
    if [[ -f out/chunk_$i.done ]]; then
        continue
    fi
    mpirun -np "$PBS_NCPUS" gmx_mpi mdrun -deffnm "out/chunk_$i" -s "in/$mdp.tpr" -cpi "restart/state.cpt" \
        -maxh 23.5 -noappend \
        && touch "out/chunk_$i.done"
done
