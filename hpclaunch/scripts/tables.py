"""The options of launchers, and the programs that are never what a job is for, as data."""

from __future__ import annotations

from hpclaunch.scripts.directives import words
from hpclaunch.scripts.slurm import SLURM_TAKES

# srun's own, beside sbatch's, that take a value as a word of its own.
SRUN_VALUES = {"mpi", "cpu-bind", "jobid", "relative", "het-group", "multi-prog", "label-format", "wait", "bcast"} | {
    name for name, takes in SLURM_TAKES.items() if takes == "="
}
SRUN_FLAGS = "kKlsuvQEXZO"
# Options of mpirun with one value, in Open MPI, Intel MPI and MPICH; and with two.
MPI_ONE = words(
    """
    --bind-to --cpus-per-proc --host --hostfile --machinefile --map-by --n --np --npernode --output-filename
    --prefix --rank-by --timeout --wdir -H -N -bind-to -bootstrap -c -f -genvlist -genvnone-list -host -hostfile
    -hosts -launcher -machinefile -map-by -n -np -npernode -output-filename -perhost -ppn -rank-by -rmk -wd
    -wdir -x
    """
)
MPI_TWO = {"-mca", "--mca", "-gmca", "--gmca", "-genv", "-env"}
# Options without a value of torchrun and accelerate, and with one of deepspeed.
TORCHRUN_FLAGS = words(
    """
    m module no-local-rank no-python run-path standalone use-env virtual-local-rank
    """
)
ACCELERATE_FLAGS = words(
    """
    cpu debug m module multi-gpu no-python q quiet same-network tpu use-deepspeed use-fsdp
    """
)
DEEPSPEED_VALUES = words(
    """
    exclude hostfile include launcher launcher-args master-addr master-port max-train-batch-size node-rank
    num-gpus num-nodes
    """
)
# What a script runs beside its program: never the program itself, even under srun.
ASIDE = words(
    """
    . : [ [[ alias awk break cat cd chmod conda continue cp date declare df dirname du echo env eval exit export
    false find git grep head hostname id jobs kill let ln local
    ls lscpu mamba mapfile micromamba mkdir ml module mv nproc nvidia-smi pip pip3 popd
    printenv printf pushd pwd qstat qsub read readarray readonly return rm rmdir rocm-smi sacct sbatch scancel
    scontrol seq set shift shopt sleep sort source squeue sstat stat tail tee test touch trap true type typeset
    ulimit umask uname uniq unlink unset uptime wait wc which whoami
    """
)
