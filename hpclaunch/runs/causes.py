"""What the words of schedulers, exit codes and error messages mean, and what may help: the tables behind `why`."""

from __future__ import annotations

import re
import signal

# Why a job waits: a pattern for the scheduler's reason, what it means, what to do. The first that fits counts.
# https://slurm.schedmd.com/job_reason_codes.html; the names as Slurm 22.05 spells them.
WAITS = {
    "Priority": "Jobs of a higher priority stand before it. Nothing to mend; shorter and smaller jobs start sooner.",
    "Resources": "It is next in line and waits for nodes to become free. Nothing to mend.",
    "QOSMaxWallDurationPerJobLimit": "Its walltime is above what its QoS allows, so it will never start. "
    "Cancel it, and submit it with a shorter --walltime or another --qos.",
    "AssocMaxWallDurationPerJobLimit": "Its walltime is above what your account allows, so it will never start. "
    "Cancel it, and submit it with a shorter --walltime.",
    "PartitionTimeLimit": "Its walltime is above what its partition allows, so it will not start. "
    "Cancel it, and submit it with a shorter --walltime or to another --partition.",
    "PartitionNodeLimit": "It asks for more nodes, or fewer, than its partition allows or has. "
    "Cancel it, and submit it with another number of --nodes or to another --partition.",
    "*MaxSubmitJob*": "You have as many jobs, waiting and running, as is allowed. It goes on once some have ended.",
    "*MaxJobs*": "As many of your jobs run as are allowed at once. It starts once one has ended.",
    "QOSMax*PerUser*": "Your running jobs use as much (GPUs, cores, nodes or memory) as one person may in this QoS. "
    "It starts once some have ended; if this job alone asks for more than the limit, it never will.",
    "*Max*PerAccount": "The running jobs of your account use as much as one account may in this QoS. "
    "It starts once some have ended; if this job alone asks for more than the limit, it never will.",
    "QOSMax*Per*": "It asks for more than one job may in its QoS, so it will never start. "
    "Cancel it, and submit it smaller or with another --qos.",
    "AssocMax*Per*": "It asks for more than one job of your account may, so it will never start. "
    "Cancel it, and submit it smaller.",
    "QOSMin*": "It asks for less than its QoS wants at least. Cancel it, and submit it larger or with another --qos.",
    "*Grp*RunMin*": "The running jobs of your group have reserved as many hours as they may at one time. "
    "It starts once some have ended.",
    "*Grp*Minutes*": "The hours of your account, or of its QoS, are used up or would not suffice. "
    "Look at your allocation (Jean-Zay: idracct; Gadi: nci_account), and ask whoever leads the project.",
    "*GrpWall*": "The time that your account, or its QoS, may run jobs for is used up. Look at your allocation.",
    "QOSGrp*": "All jobs in this QoS together use as much as it may. It starts once some have ended.",
    "AssocGrp*": "All jobs of your account together use as much as it may. It starts once some have ended; "
    "if this job alone asks for more than the limit, it never will.",
    "DependencyNeverSatisfied": "A job that it was to start after has failed, so it will never start. Cancel it.",
    "Dependency": "It starts after another job, which has not ended yet.",
    "BeginTime": "It may not start before a set time; a job that is started again waits some minutes, too.",
    "Reservation": "It waits for its reservation to begin.",
    "ReqNodeNotAvail*maintenance*": "It would not end before a maintenance begins. "
    "A shorter --walltime may fit before it; else it starts afterwards.",
    "ReqNodeNotAvail*": "Nodes that it needs are down, or reserved, often for a maintenance. "
    "A shorter --walltime may fit before one; else wait, or look at the site's news.",
    "Nodes required*": "Nodes that it needs are down, or kept for jobs of a higher priority. Wait.",
    "NodeDown": "A node that it needs is down. Wait; where you asked for that node by name, ask for another.",
    "PartitionDown": "Its partition is closed for now; jobs wait until it opens. Look at the site's news.",
    "PartitionInactive": "Its partition starts no jobs for now. Look at the site's news.",
    "BadConstraints": "No nodes fit all that it asks for together, so it will not start. "
    "Cancel it, and look at --partition, --gpus-per-node, --mem-gb and the constraints in the job script.",
    "PartitionConfig": "It fits no node of its partition, so it will never start. "
    "Cancel it, and look at --partition and at what it requests of a node: tasks, cores, GPUs, memory.",
    "JobHeldUser": "You, or a tool of yours, hold it. `scontrol release JOB` lets it go.",
    "JobHeldAdmin": "The site's staff, or Slurm itself, hold it; only they can release it. Write to support.",
    "launch failed requeued held": "A node failed while it was to start, and Slurm holds it now. "
    "`scontrol release JOB` lets it try again; if that fails as well, write to support.",
    "job requeued in held state": "It was put back into the queue and is held. `scontrol release JOB` lets it go.",
    "InvalidAccount": "Its account is not valid (any more). Cancel it, and submit it with another --account.",
    "AccountNotAllowed": "Its account may not use this partition. Cancel it; look at --account and --partition.",
    "InvalidQOS": "Its QoS is not valid (any more). Cancel it, and submit it with another --qos.",
    "QOSNotAllowed": "Its QoS may not be used in this partition. Cancel it; look at --qos and --partition.",
    "Licenses": "It waits for a licence that other jobs use.",
    "JobArrayTaskLimit": "As many tasks of its array run as you allowed at once. It starts once one has ended.",
    "Prolog": "Its nodes are being prepared. It starts in a moment.",
    "held by qhold": "You, or a tool of yours, hold it. `qrls JOB` lets it go.",
    "held by the site": "The site's staff, or PBS itself, hold it; only they can release it. Write to support.",
    "*Can Never Run*": "PBS says that it can never run: no nodes fit what it asks for. Cancel it; submit it smaller.",
    "*Insufficient amount of *(R: *": "It waits for resources to become free. Nothing to mend.",
    "*Insufficient amount of*": "Too few nodes of the kind that it requests are free; or there are too few at all, and "
    "then it never starts. Compare --nodes with `pbsnodes -aSj`; look at --partition.",
    "*Not enough * available*": "It waits for nodes to become free. Nothing to mend.",
    "*would cross dedicated time boundary*": "It would not end before a maintenance begins. "
    "A shorter --walltime may fit before it; else it starts afterwards.",
}

# How a scheduler ended a job, by its reason or the first word of that.
ENDS = {
    "TIMEOUT": "the walltime was used up. Ask for more with --walltime, or save at times and go on with --max-attempts",
    "DEADLINE": "it could not end before its deadline",
    "NODE_FAIL": "a node died. That is not your program's fault: submit it again, or use --max-attempts",
    "OUT_OF_MEMORY": "the memory (RAM) of a node that it may use was used up. Fewer DataLoader workers need less; "
    "--mem-gb asks for more, and where memory comes with the cores, --cpus-per-task does",
    "PREEMPTED": "it had to make room for a job of a higher priority. Submit it again, or use --max-attempts",
    "BOOT_FAIL": "a node could not be started. That is not your program's fault: submit it again",
    "CANCELLED": "it was cancelled",
    "its process is gone": "it was killed, or the machine went down",
    "DependencyNeverSatisfied": "a job that it was to start after has failed, so it never started",
    "deleted before it ran": "it was deleted while it waited, so it never started",
    "a subjob failed": "a job of the array failed",
    "vanished": "PBS knows nothing of it (any more). Either it ended, and PBS's memory of it is over; or PBS took it, "
    "but no queue did, as with a resource that the site does not have (look at --directive and the profile); or a job "
    "that it was to start after had failed, or was not known",
    "0:53": "the scheduler could not write its output, so it never began. Most often the folder of --output, or the "
    "folder it was submitted from, is missing, full, or not to be seen from the node",
}

_SIGNALS = {
    "SIGHUP": "its terminal or its parent went away",
    "SIGINT": "interrupted, as with Ctrl-C",
    "SIGILL": "made for another kind of processor",
    "SIGABRT": "it gave up by itself, as NCCL and failed assertions in C++ do; its last lines say why",
    "SIGBUS": "often /dev/shm is full: fewer DataLoader workers need less of it",
    "SIGFPE": "an arithmetic error in compiled code",
    "SIGKILL": "most often out of memory (RAM), else killed by the scheduler or a person",
    "SIGUSR1": "told that the walltime is near, which it does not handle",
    "SIGSEGV": "a crash in compiled code, often builds of CUDA, NCCL or MPI that do not fit together",
    "SIGPIPE": "what it wrote to went away",
    "SIGTERM": "it was told to end: cancelled, out of walltime, or because another rank failed",
    "SIGXCPU": "a limit on CPU time, such as login nodes have",
    "SIGXFSZ": "a file became larger than allowed",
}
_CODES = {
    -29: "PBS ended it: the walltime was used up",
    -28: "PBS ended it: it used more processor time than it asked for",
    -27: "PBS ended it: it used more memory than it asked for",
    -26: "PBS ended it: it used more virtual memory than it asked for",
    -25: "PBS ended it: it used more cores than it asked for",
    -24: "PBS ended it: it used more cores, for a while, than it asked for",
    -20: "PBS ended it: its first node was lost",
    0: "it ended well",
    1: "an error; a Python exception ends so",
    2: "often wrong options or arguments",
    75: "it is not done and asks for another attempt (--max-attempts)",
    126: "the command is there but cannot be executed (chmod +x?)",
    127: "command not found: is its module loaded, its environment activated (--module, --venv)?",
}


def exit_words(code: int) -> str:
    """Say what an exit code means: 0 to 255 as in a shell, PBS's own below 0, PBS's 256 + signal."""
    if code in _CODES:
        return _CODES[code]
    if code < 0:
        return "PBS ended it; the code is PBS's, not your program's"
    if code > 128:
        try:
            name = signal.Signals(code - (256 if code > 256 else 128)).name
        except ValueError:
            return "your program's own code"
        return f"{name}: {_SIGNALS.get(name, 'ended by that signal')}"
    return "your program's own code"


_NO_INTERNET = (
    "Compute nodes have no internet on most sites. Download data and models on a login node beforehand, and set "
    "--env HF_HUB_OFFLINE=1 --env WANDB_MODE=offline"
)
_RAM = "The node's memory (RAM) is used up. Fewer DataLoader workers need less; --mem-gb or --cpus-per-task gives more"
_NCCL = (
    "Ranks lost each other. Mostly another rank failed or hung first: look at the other logs; if none did, the network "
    "is to blame: --env NCCL_DEBUG=INFO says more"
)

# What may help, by what the last lines say; of one line, the first that fits counts.
HINTS = {
    r"(CUDA|HIP) out of memory|CUBLAS_STATUS_ALLOC_FAILED": "The GPU's memory is used up. A smaller batch per GPU, "
    "16-bit precision or activation checkpointing need less; more GPUs do not help, each holds a whole model",
    r"(?i)/dev/shm|insufficient shared memory|unable to \w+ shared memory|shared memory (file|object|manager)"
    r"|\bbus error": "DataLoader workers pass batches through /dev/shm, which is full. Fewer workers help, "
    "or torch.multiprocessing.set_sharing_strategy('file_system')",
    r"(?i)oom[-_ ]kill|MemoryError|can(no|')t allocate memory|out of memory|job killed: \S*mem": _RAM,
    r"No module named": "The job's python does not have it. Is it the python you think? Put `which python` "
    "before it with --setup; choose another with --module or --venv",
    r"cannot open shared object file|undefined symbol": "A library is missing or of another version: the job's modules "
    "are not those the program was built with. Look at --module",
    r"(?i)address already in use|EADDRINUSE": "Something else listens on that port. A fixed port in your program? "
    "Use MASTER_PORT from the environment, which is free for each job",
    r"invalid device ordinal": "A rank asked for a GPU that its node does not have. Use LOCAL_RANK, not RANK, to "
    "choose it, and no more --tasks-per-node than --gpus-per-node",
    r"(?i)no CUDA GPUs are available|no CUDA-capable device|no NVIDIA driver|not compiled with CUDA": "No GPU was to "
    "be seen: is --gpus-per-node 0, the partition one without GPUs, or torch a build without CUDA?",
    r"(?i)No space left on device|quota exceeded|\[Errno (28|122)\]": "A disk or quota is full, in bytes or in number "
    "of files. $HOME is small everywhere: write to scratch or work, caches (HF_HOME, TORCH_HOME, PIP_CACHE_DIR) too",
    r"No such file or directory.*/(g/data|scratch)/|/(g/data|scratch)/.*No such file or directory": "On Gadi a job "
    "sees only the file systems it names: --storage gdata/PROJECT --storage scratch/PROJECT. Elsewhere, check the path",
    r"module: command not found": "The job's shell has no modules: source /etc/profile in it first, with --setup say",
    r"(?i)unable to locate a modulefile|module\(?s?\)? (is|are) unknown": "There is no such module: see `module avail`",
    r"\\r': command not found|bad interpreter.*\^M": "The script has Windows line ends: dos2unix mends that",
    r": command not found": "The program is not on PATH in the job: is its module loaded, its environment activated "
    "(--module, --venv)?",
    r"(?i)Permission denied": "A file may not be read, written or executed: `ls -l` it, and `namei -l` its path",
    r"(?i)temporary failure in name resolution|urlopen error|\bConnectionError\b|network is unreachable"
    r"|max retries exceeded|name or service not known|couldn't connect to .?https?:": _NO_INTERNET,
    r"(?i)ProcessGroupNCCL|\bNCCL (error|WARN)|nccl(Remote|System|Internal|UnhandledCuda)Error|DistBackendError"
    r"|DistNetworkError|collective operation timeout|connection (closed|reset) by (remote )?peer": _NCCL,
    r"(?i)due to time limit|job killed: walltime": "The walltime was used up: --walltime, or --max-attempts to go on",
    r"No such file or directory": "A path is wrong. Relative ones start at the folder the job was submitted from",
    r"attempts are used up": "The job was not done after its last attempt: submit it with more --max-attempts",
    # What srun says of tasks that it killed itself is no sign of a full memory.
    r"^(?!srun: ).*(\bKilled\b|signal 9\b|SIGKILL)": _RAM,
    r"(Application|Task) launch .*failed": "Slurm could not start the program on a node, which may be down. That is "
    "not your program's fault: submit it again; --directive=--exclude=NODE avoids the node",
}


def hint(lines: list[str]) -> str:
    """Return what may help, by the last of `lines` that says something known; nothing where none does."""
    for line in reversed(lines):
        for pattern, advice in HINTS.items():
            if re.search(pattern, line):
                return advice
    return ""
