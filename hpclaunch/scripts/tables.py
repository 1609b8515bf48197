"""The options of launchers, and the programs that a job is never for, as data."""

from __future__ import annotations

from hpclaunch.job.directives.read import words
from hpclaunch.job.directives.sbatch import SLURM_TAKES

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
    . : [ [[ alias awk basename break bzip2 cat cd chgrp chmod chown command conda continue cp curl cut date declare
    df diff dirname du echo env eval exit export false fg find for free git grep gunzip gzip head hostname id jobs
    kill let ln local ls lscpu lsof mamba mapfile md5sum micromamba mkdir ml mktemp module mv nproc nvidia-smi pip pip3
    popd printenv printf pushd pwd qdel qstat qsub read readarray readlink readonly realpath return rm rmdir rocm-smi
    rsync sacct sbatch scancel scontrol scp sed select seq set shift shopt sleep sort source squeue sstat stat
    tail tar tee test touch tr trap true type typeset ulimit umask uname uniq unlink unset unzip uptime wait wc wget
    which whoami zip
    """
)
# Programs that start what stands behind them: how many words of their own come first, and options with a value.
PASS = {
    **dict.fromkeys(words("builtin command env exec nice nohup numactl stdbuf time unbuffer"), (0, "-a -n -u")),
    **dict.fromkeys(words("conda mamba micromamba"), (0, "-n --name -p --prefix")),
    "timeout": (1, "-k -s"),
}
