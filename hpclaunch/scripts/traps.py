"""What can only be wrong with a script, not with a request: each trap, why, and where that is written down."""

from __future__ import annotations

from msgspec import Struct

_OPENPBS = "OpenPBS 23.06, seen"
_QSUB = "https://github.com/openpbs/openpbs/blob/master/doc/man1/qsub.1B"
_PBSDSH = "https://github.com/openpbs/openpbs/blob/master/doc/man1/pbsdsh.1B"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_MANUALS = f"{_QSUB} | {_SBATCH}"
_BOTH = f"{_OPENPBS} | {_SBATCH}"
_LIGHTNING = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.2/src/lightning/fabric/plugins/environments/slurm.py"
)
_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"


class Trap(Struct, frozen=True):
    """A rule about scripts: a sentence for the list of checks, its source, and whether that is sure enough to refuse.

    `reads` are the profile's keys, as in hpclaunch.job.checks; the source of such a trap is the profile's line. Any
    other source is one that a reader can look up.
    """

    sentence: str
    source: str = ""
    refuses: bool = True
    reads: str = ""


TRAPS = {
    # The file.
    "shell": Trap("The shell cannot read the script: a quote or a block that is never closed.", "bash(1)"),
    "crlf": Trap("Lines end as on Windows: qsub and sbatch refuse such a script.", _BOTH),
    "scheduler": Trap("The script has no directives, or another scheduler's than the site's.", _MANUALS),
    # Directives.
    "late": Trap("A directive stands after the first command, where the scheduler ignores it.", _MANUALS, False),
    "almost": Trap("A line looks like a directive and is a comment to the scheduler.", _BOTH, False),
    "comment": Trap("A comment stands behind a #PBS directive: qsub refuses the script.", _OPENPBS),
    "unreadable": Trap("A directive is nothing that the scheduler can read.", _BOTH),
    "unknown-option": Trap("An option that hpclaunch does not know.", "", False),
    "variable": Trap("A $VARIABLE in a directive: schedulers do not expand them.", _MANUALS),
    "placeholders": Trap("A placeholder is left where a real value belongs."),
    "repeated": Trap("An option is given twice with different values; only one of them counts.", _BOTH, False),
    "malformed": Trap("A value that the scheduler cannot read.", _BOTH),
    "interactive": Trap("An option for interactive jobs, which a script cannot be.", _QSUB, False),
    "export": Trap("-V or --export=ALL takes the login shell's whole environment along.", _MANUALS, False),
    "comma": Trap("A comma in a value of -v: PBS splits the list there.", _QSUB),
    "log-folder": Trap("The folder of the output does not exist, or cannot before the job does.", _MANUALS),
    "short-time": Trap("A walltime that is minutes or seconds to the scheduler, and perhaps hours to its author.",
                       _BOTH, False),
    # What is asked for.
    "no-walltime": Trap("No walltime: the site's own default is short.", _MANUALS, reads="any_partition"),
    "no-queue": Trap("No queue is named, so the job goes into the site's own choice.", _QSUB, False),
    "no-account": Trap("No account to charge, where the site needs one.", reads="account_help"),
    "select": Trap("select= or nodes=:ppn= where the site takes totals of the whole job.", reads="refused_directives"),
    "totals": Trap("Totals that do not fit together: cores for each GPU, whole nodes, memory per node.",
                   reads="cpus_per_gpu cpus_per_gpu_exact cores_per_node multi_node"),
    "exec-queue": Trap("The queue's name as qstat shows it (NAME-exec), not as one asks for it.", reads="partitions"),
    "constraint": Trap("The account's suffix belongs to hardware that the script does not ask for.",
                       reads="account_suffixes directives"),
    "default-qos": Trap("Longer or larger than the QoS that a job gets which names none: it pends for ever.",
                        reads="qos"),
    "no-gpu-gres": Trap("--gres=gpu:0 asks for GPU nodes all the same.",
                        "https://github.com/bigscience-workshop/bigscience/blob/master/jz/slurm/README.md"),
    "ntasks": Trap("--ntasks without --ntasks-per-node: Lightning refuses to start.", _LIGHTNING),
    "layout": Trap("The ranks on a node do not fit its GPUs, or its launcher.", _LIGHTNING),
    "site-directive": Trap("A directive is missing that every job of the site should have.", refuses=False,
                           reads="directives"),
    "jobfs": Trap("No node-local disk is asked for: $TMPDIR lies there, and a job that asks for none gets very little.",
                  refuses=False, reads="ask_jobfs jobfs_gb_per_node"),
    "few-cpus": Trap("A GPU job on Slurm that asks for no cores: each task gets one, though more come with a GPU.",
                     _SBATCH, False, reads="cpus_per_gpu"),
    "signal": Trap("--signal, and nothing that handles it.", _SBATCH, False),
    # Commands.
    "fan-out": Trap("The training is started on one node, or as one rank, where the job has more.", _LIGHTNING),
    "wait": Trap("A start in the background for which nothing waits: the end of the script ends the job.", _MANUALS),
    "early-variable": Trap("$SLURM_PROCID or the like is expanded before srun: 0 on every node.",
                           "https://slurm.schedmd.com/srun.html"),
    "fixed-port": Trap("A fixed port on a node that other jobs share.", _TORCHRUN),
    "pbsdsh": Trap("pbsdsh that starts a copy on every core, or with an option that only Torque has.", _PBSDSH),
    "node-count": Trap("The lines of $PBS_NODEFILE counted as nodes: there is one for each core.", _PBSDSH),
    "ncpus-variable": Trap("A variable NCPUS: PBS sets it itself, to the cores of the node.", _OPENPBS),
    "download": Trap("A download on nodes without internet.", refuses=False, reads="internet"),
    "storage": Trap("A path in a file system that the job does not ask to see.", reads="storage_roots"),
    "commands": Trap("A command that the site has replaced.", reads="removed_commands"),
    "modules": Trap("The partition's own module is missing, is another GPU's, or comes too late.",
                    reads="modules"),
    "folder": Trap("No `cd`: PBS starts a job in the home folder.", _QSUB),
    "trainer": Trap("The command's devices or nodes differ from the directives'.", _LIGHTNING),
    "job-name": Trap("A job name that the scheduler or Lightning cannot have.",
                     f"https://github.com/openpbs/openpbs/blob/master/src/lib/Libcmds/ck_job_name.c | {_LIGHTNING}"),
}  # fmt: skip
