"""The options of launchers, and the programs that a job is never for, as data."""

from hpclaunch.job.directives.read import words
from hpclaunch.job.directives.sbatch import SLURM_TAKES

# What starts other programs: the options, without their dashes, whose value is a word of its own.
VALUES = {
    "srun": words("mpi cpu-bind jobid relative het-group label-format bcast r T C W")
    | {name for name, takes in SLURM_TAKES.items() if takes == "="},
    "mpirun": words(
        "H N bind-to bootstrap c cpu-bind cpus-per-proc d depth f genvlist genvnone-list host hostfile hosts "
        "launcher machinefile map-by mem-bind n np npernode output-filename perhost pmi ppn prefix rank-by rmk "
        "timeout wd wdir x"
    ),
    "pbsdsh": words("n c h"),
    "ssh": words("o p i l"),
    "deepspeed": words(
        "exclude hostfile include launcher launcher-args master-addr master-port max-train-batch-size node-rank "
        "num-gpus num-nodes"
    ),
}
MPI_TWO = words("mca gmca genv env")  # options of mpirun with two values
# Of these all options have a value but those.
FLAGS = {
    "torchrun": words("m module no-local-rank no-python run-path standalone use-env virtual-local-rank"),
    "accelerate": words("cpu debug m module multi-gpu no-python q quiet same-network tpu use-deepspeed use-fsdp"),
}
# What a script runs beside its program: never the program itself, even under srun.
ASIDE = words(
    ". : [ [[ alias awk basename break bzip2 cat cd chgrp chmod chown command conda continue cp curl cut date "
    "declare df diff dirname du echo env eval exit export false fg find for free git grep gunzip gzip head hostname "
    "id jobs kill let ln local ls lscpu lsof mamba mapfile md5sum micromamba mkdir ml mktemp module mv nproc "
    "nvidia-smi pip pip3 popd printenv printf pushd pwd qdel qstat qsub read readarray readlink readonly realpath "
    "return rm rmdir rocm-smi rsync sacct sbatch scancel scontrol scp sed select seq set shift shopt sleep sort "
    "source squeue sstat stat tail tar tee test touch tr trap true type typeset ulimit umask uname uniq unlink unset "
    "unzip uptime wait wc wget which whoami zip"
)
# Programs that start what stands behind them: how many words of their own come first.
PASS = {
    **dict.fromkeys(
        words("builtin command env exec nice nohup numactl stdbuf time unbuffer conda mamba micromamba"), 0
    ),
    "timeout": 1,
}
VALUES |= dict.fromkeys(PASS, words("a n u name p prefix k s"))
