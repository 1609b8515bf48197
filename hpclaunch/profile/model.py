"""The model of a site profile: every key that people write in its YAML, its type and its meaning."""

import datetime
import re
from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from hpclaunch.profile.yamlfile import Key

Count = Annotated[int, Meta(ge=1, lt=10**9)]
Amount = Annotated[float, Meta(gt=0, lt=1e9)]
Price = Annotated[float, Meta(ge=0, lt=1e12)]
# One line, and nothing by which a terminal changes what it shows: no control characters, no change of direction.
Line = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+$(?!\n)",
        extra={"rule": "one line of text"},
    ),
]
Word = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_.+@:/=%-]+$(?!\n)", extra={"rule": "one word of letters, digits and _.+@:/=%-"})
]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)", extra={"rule": "a variable's name"})]
Walltime = Annotated[
    str,
    Meta(
        pattern=r"^(?!0+:00:00)[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]$(?!\n)",
        extra={"rule": 'HH:MM:SS in quotes, like "48:00:00"'},
    ),
]
Umask = Annotated[str, Meta(pattern=r"^0?[0-7]{3}$(?!\n)", extra={"rule": 'three octal digits in quotes, like "027"'})]
Launcher = Literal["tasks", "torchrun", "lightning", "mpirun"]
LAUNCHERS = get_args(Launcher)
ONE_PER_NODE = {"torchrun", "lightning"}  # these start a node's ranks themselves


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a profile: a key that it does not know is a mistake."""


class Charge(Record, frozen=True, kw_only=True):
    """What an hour costs."""

    unit: Annotated[Line, Meta(description="What the site counts in: SU, GPU-hours, core-hours.")]
    per: Annotated[Literal["core", "gpu"], Meta(description="What is multiplied by the hours and the rate.")]
    rate: Annotated[Amount, Meta(description="Units for one core, or one GPU, for one hour.")]
    mem_gb_per_core: Annotated[
        Amount | None, Meta(description="Memory beyond this share is charged as cores (absent: memory is free).")
    ] = None
    mem_gb_block: Annotated[
        Amount | None, Meta(description="Memory is charged in whole blocks of this size (absent: by the GB).")
    ] = None


class Grant(Record, frozen=True, kw_only=True):
    """How the site tells what is left to an account."""

    command: Annotated[
        list[Line],
        Meta(min_length=1, description="The command, word by word; {account}, and {project} without its @suffix."),
    ]
    remaining: Annotated[Line, Meta(description="What stands before the number that is left, a regular expression.")]


class Tier(Record, frozen=True, kw_only=True):
    """The longest walltime up to a size; the sizes rise from one tier to the next."""

    max_walltime: Walltime
    max_cores: Annotated[Count | None, Meta(description="Cores of the whole job, at most (absent: any).")] = None


class Qos(Record, frozen=True, kw_only=True):
    """A quality of service: a class of jobs with limits of its own."""

    name: Word
    max_walltime: Walltime
    max_gpus: Annotated[Count | None, Meta(description="GPUs of one job, at most.")] = None
    max_cores: Annotated[Count | None, Meta(description="Cores of one job, at most.")] = None
    disputed_max_gpus: Annotated[
        Count | None, Meta(description="The largest max_gpus that any source gives, where they disagree.")
    ] = None
    max_jobs: Annotated[Count | None, Meta(description="Jobs of one person, an array's among them, at most.")] = None
    default: Annotated[bool, Meta(description="What a job gets that names none, so no directive is needed.")] = False
    automatic: Annotated[bool, Meta(description="May be chosen for a job that does not name it.")] = True
    unconfirmed: Annotated[list[str], Meta(description="Keys whose values only warn.")] = []


class Partition(Record, frozen=True, kw_only=True):
    """One kind of node and what may be asked of it (Slurm: partition or constraint; PBS: queue)."""

    description: Line = ""
    aliases: Annotated[list[Word], Meta(description="Other names that people know it by.")] = []
    directives: Annotated[
        list[Line] | None, Meta(description="How to ask for it (absent: by its name; []: no directive is needed).")
    ] = None
    cores_per_node: Count | None = None
    gpus_per_node: Annotated[int, Meta(ge=0)] = 0
    gpu: Annotated[Line | None, Meta(description="The GPU's model.")] = None
    compute_capability: Annotated[
        Amount | None, Meta(description="The GPU's, as NVIDIA numbers them; bf16 needs 8.0.")
    ] = None
    cpus_per_gpu: Annotated[Count | None, Meta(description="Cores that come with each GPU.")] = None
    cpus_per_gpu_exact: Annotated[bool, Meta(description="A job must ask for just that many per GPU.")] = False
    mem_gb_per_node: Annotated[Amount | None, Meta(description="Memory that jobs may use on a node.")] = None
    default_mem_gb_per_node: Annotated[Amount | None, Meta(description="Asked for a whole node (absent: all).")] = None
    jobfs_gb_per_node: Annotated[Amount | None, Meta(description="Node-local disk that jobs may use.")] = None
    default_jobfs_gb_per_node: Annotated[Amount | None, Meta(description="Asked for a whole node (absent: all).")] = (
        None
    )
    min_cores: Annotated[Count | None, Meta(description="Cores of the whole job, at least.")] = None
    max_cores: Annotated[Count | None, Meta(description="Cores of the whole job, at most.")] = None
    core_step: Annotated[Count | None, Meta(description="Cores of a job come in multiples of this.")] = None
    walltime: Annotated[list[Tier], Meta(description="The longest walltime by size.")] = []
    qos: Annotated[list[Qos], Meta(description="In the order in which they are tried.")] = []
    account_suffixes: Annotated[list[Word], Meta(description="What the account must end in, one of these.")] = []
    modules: Annotated[list[Line], Meta(description="Loaded before the site's modules.")] = []
    charge: Charge | None = None
    free: Annotated[
        bool, Meta(description="Jobs cost nothing (neither free nor a charge: the price is not known).")
    ] = False
    internet: Annotated[bool | None, Meta(description="Its nodes reach the internet (absent: as the site's).")] = None
    small_jobs: Annotated[
        bool, Meta(description="A job that names no size gets one core and no GPU (absent: its share of a node).")
    ] = False
    hint: Annotated[Line | None, Meta(description="Said to whoever asks for this partition by name.")] = None
    unconfirmed: Annotated[list[str], Meta(description="Keys whose values only warn: their source is weak.")] = []


class RefusedDirective(Record, frozen=True, kw_only=True):
    """Directives that a site does not take."""

    pattern: Annotated[Line, Meta(description="A regular expression, searched in what follows #PBS or #SBATCH.")]
    why: Annotated[Line, Meta(description="What is wrong with it, and what would be right.")]
    warns: Annotated[bool, Meta(description="Warns and does not refuse.")] = False

    def fits(self, directive: str) -> bool:
        """Tell whether this is about `directive`, whose first 200 characters count: a pattern may be slow."""
        return re.search(self.pattern, directive[:200]) is not None


class Site(Record, frozen=True, kw_only=True):
    """A site profile: how to ask one machine for nodes, what it refuses, and what it costs."""

    title: Line
    scheduler: Literal["pbs", "slurm", "local"]
    partitions: Annotated[dict[Word, Partition], Meta(min_length=1)]
    default_partition: Word
    checked: Annotated[datetime.date | None, Meta(description="When its facts were last compared with sources.")] = None
    docs: Annotated[Line | None, Meta(description="The user guide's address.")] = None
    extends: Annotated[Word | None, Meta(description="A profile whose keys this one changes.")] = None
    template: Annotated[Word | None, Meta(description="Name of the job script's template (absent: scheduler).")] = None
    hostnames: Annotated[list[Line], Meta(description="Patterns of its login nodes' names.")] = []
    launcher: Launcher = "tasks"
    default_walltime: Walltime = "01:00:00"
    max_attempts: Annotated[
        Count, Meta(description="How often a job may go on past its walltime, the first included.")
    ] = 1
    warn_before: Annotated[Walltime, Meta(description="How long before the walltime the ranks are told.")] = "00:02:00"
    grace: Annotated[Walltime, Meta(description="How long ranks have from TERM to KILL.")] = "00:00:06"
    dead_after: Annotated[
        Walltime, Meta(description="How long a node may be silent (PBS: no heartbeat) until it counts as dead.")
    ] = "00:00:45"
    resubmit: Annotated[bool, Meta(description="Jobs may submit jobs (PBS: qsub works on compute nodes).")] = True
    account: Annotated[Word | None, Meta(description="Whom to charge where the request does not say.")] = None
    account_help: Annotated[Line | None, Meta(description="Said when there is none (absent: none is needed).")] = None
    grant: Grant | None = None
    confirm_above: Annotated[Price | None, Meta(description="Submitting what may cost more is asked about.")] = None
    waiting: Annotated[list[Line], Meta(description="What makes jobs wait here, in words.")] = []
    multi_node: Annotated[
        Literal["shared", "whole", "exclusive"],
        Meta(
            description="Jobs on several nodes: may share them; must ask for whole nodes; or are given, and charged, "
            "whole nodes whatever they ask for."
        ),
    ] = "shared"
    ask_memory: Annotated[bool, Meta(description="Ask for memory in every job, not only when the request does.")] = (
        False
    )
    ask_jobfs: Annotated[bool, Meta(description="Ask for node-local disk in every job.")] = False
    storage: Annotated[list[Word], Meta(description="File systems that a job must name to see them.")] = []
    storage_roots: Annotated[
        dict[Line, Word],
        Meta(description="What a path below one of these names, by its next folder: /g/data: gdata makes gdata/ab12."),
    ] = {}
    storage_given: Annotated[
        list[Line], Meta(description="File systems that every job sees unnamed; {account} is whom it charges.")
    ] = []
    home_gb: Annotated[Amount | None, Meta(description="What a home folder holds, where that is little.")] = None
    expiring: Annotated[
        dict[Line, Count], Meta(description="Folders whose unused files are removed, after so many days.")
    ] = {}
    only_on: Annotated[dict[Line, list[Word]], Meta(description="Folders that only these partitions see.")] = {}
    internet: Annotated[bool | None, Meta(description="Its nodes reach the internet (absent: not known).")] = None
    memory_follows_cpus: Annotated[bool, Meta(description="Memory comes with the cores; a job asks for none.")] = False
    removed_commands: Annotated[
        dict[Word, Line], Meta(description="Commands that are gone, and what to use instead.")
    ] = {}
    own_commands: Annotated[
        dict[Word, Line | None],
        Meta(description="Commands that only this site has: what each stands for (accelerate launch), or null."),
    ] = {}
    refused_directives: Annotated[
        list[RefusedDirective], Meta(description="Directives that the site does not take.")
    ] = []
    module_paths: Annotated[list[Line], Meta(description="Folders for `module use`.")] = []
    module_purge: bool = False
    modules: Annotated[list[Line], Meta(description="Loaded where the request names none.")] = []
    setup: Annotated[list[Line], Meta(description="Lines of shell, after modules and environment.")] = []
    teardown: Annotated[list[Line], Meta(description="Lines of shell at the job's end, however it ends.")] = []
    env: Annotated[dict[Variable, Line], Meta(description="Exported in the job; $NAME in a value is expanded.")] = {}
    datasets: Annotated[
        dict[Variable, Line],
        Meta(description="Variables that tell the bundled workloads where data lies; $NAME is expanded."),
    ] = {}
    directives: Annotated[list[Line], Meta(description="Directives for every job, as after #PBS or #SBATCH.")] = []
    restricted: Annotated[
        list[Word],
        Meta(
            description="Partitions and QoS that exist, for some people only, and that this profile does not describe."
        ),
    ] = []
    umask: Annotated[Umask | None, Meta(description="The job's umask, in quotes.")] = None
    any_partition: Annotated[
        bool, Meta(description="A partition that is not listed may be named too; nothing is limited in any of them.")
    ] = False
    arrays: Annotated[bool, Meta(description="Takes job arrays.")] = True
    max_array: Annotated[Count | None, Meta(description="Jobs of one array, at most.")] = None
    rerunnable: Annotated[
        bool, Meta(description="Jobs may run again unless they say otherwise; PBS makes arrays of such alone.")
    ] = True
    poll: Annotated[
        Walltime, Meta(description="The least time between two questions that are asked automatically.")
    ] = "00:00:02"
    master_suffix: Annotated[Word | None, Meta(description="Appended to the head node's name in MASTER_ADDR.")] = None
    unconfirmed: Annotated[list[str], Meta(description="Keys whose values only warn: their source is weak.")] = []

    def find_partition(self, name: str) -> tuple[str, Partition] | None:
        """Return the partition that goes by `name`, with its own name."""
        for own, partition in self.partitions.items():
            if name == own or name in partition.aliases:
                return own, partition
        return None

    def mistakes(self) -> Iterator[tuple[Key, str]]:
        """Name the values that are right alone and wrong together."""
        from hpclaunch.profile.rules import site_mistakes

        return site_mistakes(self)
