"""The options of schedulers and launchers, as data."""

from __future__ import annotations

import re

# sbatch's long options; behind a blank the short one. `=` takes a value, `?` may have one (only as --option=VALUE).
_SLURM = """
account= A, acctg-freq=, array= a, batch=, bb=, bbf=, begin= b, chdir= D, workdir=, cluster-constraint=, clusters= M,
comment=, constraint= C, container=, container-id=, contiguous, core-spec= S, cores-per-socket=, cpu-freq=,
cpus-per-gpu=, cpus-per-task= c, deadline=, delay-boot=, dependency= d, distribution= m, error= e, exclude= x,
exclusive?, export=, export-file=, extra=, extra-node-info= B, get-user-env?, gid=, gpu-bind=, gpu-freq=, gpus= G,
gpus-per-node=, gpus-per-socket=, gpus-per-task=, gres=, gres-flags=, hint=, hold H, ignore-pbs, input= i,
job-name= J, kill-on-invalid-dep=, licenses= L, mail-type=, mail-user=, mcs-label=, mem=, mem-bind=, mem-per-cpu=,
mem-per-gpu=, mincpus=, network=, nice?, no-kill? k, no-requeue, nodefile= F, nodelist= w, nodes= N, ntasks= n,
ntasks-per-core=, ntasks-per-gpu=, ntasks-per-node=, ntasks-per-socket=, open-mode=, output= o, overcommit O,
oversubscribe s, parsable, partition= p, power=, prefer=, priority=, profile=, propagate?, qos= q, quiet Q, reboot,
requeue, reservation=, resv-ports?, segment=, share, signal=, sockets-per-node=, spread-job, stepmgr, switches=,
tasks-per-node=, test-only, thread-spec=, threads-per-core=, time= t, time-min=, tmp=, tres-bind=, tres-per-task=, uid=,
use-min-nodes, verbose v, wait W, wait-all-nodes=, wckey=, wrap=
"""


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return set(text.split())


def _table(text: str) -> tuple[dict[str, str], dict[str, str]]:
    takes, short = {}, {}
    for item in text.split(","):
        name, _, letter = item.strip().partition(" ")
        bare = name.rstrip("=?")
        takes[bare] = name[len(bare) :]
        if letter:
            short[letter] = bare
    return takes, short


SLURM_TAKES, SLURM_SHORT = _table(_SLURM)
SLURM_SAME = {"workdir": "chdir", "share": "oversubscribe", "tasks-per-node": "ntasks-per-node"}
# qsub(1B) of PBS Pro; a colon behind those that take a value.
PBS_LETTERS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"
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


_DIRECTIVES = {
    "pbs": {
        "walltime": "-l walltime={}",
        "mem-gb": "-l mem={}GB",
        "jobfs-gb": "-l jobfs={}GB",
        "gpus-per-node": "-l ngpus={}",
        "cpus-per-task": "-l ncpus={}",
        "partition": "-q {}",
    },
    "slurm": {
        "walltime": "--time={}",
        "mem-gb": "--mem={}G",
        "gpus-per-node": "--gres=gpu:{}",
        "tasks-per-node": "--ntasks-per-node={}",
        "cpus-per-task": "--cpus-per-task={}",
        "qos": "--qos={}",
    },
}


def in_scripts_words(message: str, scheduler: str, nodes: int, tasks: int) -> str:
    """Return a message of hpclaunch's options in the words of directives; PBS takes the sums of all nodes and tasks."""

    def directive(found: re.Match[str]) -> str:
        form = _DIRECTIVES.get(scheduler, {}).get(found[1])
        if not form or scheduler != "pbs" or not found[2].isdigit():
            return form.format(found[2]) if form else found[0]
        return form.format(int(found[2]) * nodes * (tasks if found[1] == "cpus-per-task" else 1))

    message = re.sub(r"--nodes 1 --gpus-per-node (\d+)", "--gpus-per-node \\1 on --nodes 1", message)
    return re.sub(
        r"--(walltime|mem-gb|jobfs-gb|gpus-per-node|tasks-per-node|cpus-per-task|partition|qos) ([\w:.-]+)",
        directive,
        message,
    )
