"""The model of a site profile: every key of its YAML, its type and its meaning."""

import datetime
import re
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from hpclaunch.profile.types import (
    Amount,
    Cores,
    Count,
    Launcher,
    Line,
    Omitted,
    OptionalLine,
    Price,
    Record,
    Umask,
    Variable,
    Walltime,
    Word,
)
from hpclaunch.schedulers import SCHEDULERS, scheduler


class Charge(Record, frozen=True, kw_only=True):
    """The price of an hour: the rate times the cores, GPUs or nodes; if others count too, the largest of the shares."""

    unit: Line  # The unit of the price: SU, GPU-hours, core-hours.
    per: Literal["core", "gpu", "node"]  # What is multiplied by the hours and the rate.
    rate: Amount  # Units for one core, GPU or node for one hour.
    cores: Amount | None = None  # So many cores are charged as one (absent: only per core).
    gpus: Amount | None = None  # So many GPUs are charged as one; 0.125: a GPU counts as 8.
    mem_gb: Amount | None = None  # So many GB are charged as one (absent: memory is free).
    mem_gb_block: Amount | None = None  # Memory is charged in blocks of this size (absent: by GB).
    round_up: bool = False  # Each share is rounded up.


class Allocation(Record, frozen=True, kw_only=True):
    """How to ask the site what remains of an account's allocation."""

    command: Annotated[list[Line], Meta(min_length=1)]  # Word by word; {account}, and {project} without its @suffix.
    remaining: Line  # What stands before the remaining amount, a regular expression.


class Tier(Record, frozen=True, kw_only=True):
    """The longest walltime for jobs up to a size; each tier is larger than the one before."""

    max_walltime: Walltime  # The longest walltime.
    max_cores: Count | None = None  # Cores of the whole job, at most (absent: any).
    max_nodes: Count | None = None  # Nodes of the job, at most (absent: any).


class Qos(Record, frozen=True, kw_only=True):
    """A quality of service: a class of jobs with its own limits."""

    name: Word  # As in --qos.
    max_walltime: Walltime  # The longest walltime.
    max_gpus: Count | None = None  # GPUs of one job, at most.
    max_cores: Count | None = None  # Cores of one job, at most.
    disputed_max_gpus: Count | None = None  # The largest max_gpus of any source, if they disagree.
    max_jobs: Count | None = None  # Jobs of one user, including those of arrays, at most.
    min_nodes: Count | None = None  # Nodes of one job, at least.
    max_nodes: Count | None = None  # Nodes of one job, at most.
    min_walltime: Walltime | None = None  # The shortest walltime that may be requested.
    default: bool = False  # Given to a job that names none, so no directive is needed.
    automatic: bool = True  # May be chosen for a job that does not name it.
    unconfirmed: list[str] = []  # Keys that only warn.


class Partition(Record, frozen=True, kw_only=True):
    """One kind of node and what a job may request of it (Slurm: partition or constraint; PBS: queue)."""

    description: Line = ""  # What its nodes are, in a few words.
    aliases: list[Word] = []  # Other names for it.
    directives: list[Line] | None = None  # Directives that request it (absent: its name; []: none).
    constraint: bool = False  # Its name is a constraint (-C) and no partition of Slurm's.
    cores_per_node: Count | None = None  # Cores that jobs may use on a node.
    gpus_per_node: Annotated[int, Meta(ge=0)] = 0  # GPUs of a node.
    gpu: Line | None = None  # The GPU's model.
    compute_capability: Amount | None = None  # The GPU's, as NVIDIA defines it; bf16 needs 8.0.
    vendor: Literal["nvidia", "amd", "intel"] | None = None  # Who made its GPUs (absent: nvidia).
    backend: Literal["nccl", "xccl"] | None = None  # torch's, if the GPUs' is not nccl.
    arch: Literal["x86_64", "aarch64"] | None = None  # Of the nodes' processors.
    rank_cpus: list[Cores] = []  # The cores of each local rank on a whole node, next to its GPU.
    srun: list[Line] | None = None  # Further options of srun (absent: the site's).
    wrapper: Line | None = None  # Words before the command of each rank (absent: the site's).
    cpus_per_gpu: Count | None = None  # Cores that come with each GPU.
    cpus_per_gpu_exact: bool = False  # A job must request exactly that many per GPU.
    mem_gb_per_node: Amount | None = None  # Memory that jobs may use on a node.
    default_mem_gb_per_node: Amount | None = None  # Requested for a whole node (absent: all).
    jobfs_gb_per_node: Amount | None = None  # Node-local disk that jobs may use.
    default_jobfs_gb_per_node: Amount | None = None  # Requested for a whole node (absent: all).
    min_cores: Count | None = None  # Cores of the whole job, at least.
    max_cores: Count | None = None  # Cores of the whole job, at most.
    core_step: Count | None = None  # Jobs have a multiple of this many cores.
    walltime: list[Tier] = []  # The longest walltime by size.
    qos: list[Qos] = []  # In the order in which they are chosen.
    account_suffixes: list[Word] = []  # The account must end in one of these.
    modules: list[Line] = []  # Loaded before the site's modules.
    charge: Charge | None = None
    free: bool = False  # Jobs cost nothing (neither free nor charge: the price is not known).
    internet: bool | None = None  # Its nodes have internet access (absent: as the site's).
    small_jobs: bool = False  # Jobs without a size get one core, no GPU (absent: a share of a node).
    automatic: bool = True  # May be chosen for a job that names no partition.
    hint: Line | None = None  # Printed for users who request this partition by name.
    min_nodes: Count | None = None  # Nodes of one job, at least.
    max_nodes: Count | None = None  # Nodes of one job, at most.
    min_walltime: Walltime | None = None  # The shortest walltime that may be requested.
    max_jobs: Count | None = None  # Jobs of one user, including those of arrays, at most.
    whole_nodes: bool = False  # Jobs are given and charged whole nodes, also a single one.
    chunk: tuple[Line, ...] | None = None  # Instead of the site's.
    place: OptionalLine | None = None  # Instead of the site's.
    gpu_directive: OptionalLine | None = None  # Instead of the site's.
    omit: list[Omitted] | None = None  # Instead of the site's.
    unconfirmed: list[str] = []  # Keys that only warn, as their source is weak.


OWN = ("chunk", "place", "gpu_directive", "omit", "srun", "wrapper")  # keys of a partition that stand for the site's


class Container(Record, frozen=True, kw_only=True):
    """How commands run in an image."""

    # What runs images.
    runtime: Literal["apptainer", "singularity", "podman-hpc", "pyxis", "charliecloud"] = "apptainer"
    binds: list[Line] = []  # Folders of the node to see inside, as SRC or SRC:DEST.
    options: list[Line] = []  # Further words for the runtime.
    folders: list[Line] = []  # Images must lie in one of them; $NAME is expanded.
    modules: list[Line] = []  # Loaded to have the runtime.
    gpu_option: Line | None = None  # Gives it the GPUs (absent: --nv, --rocm or --gpu).


class RefusedDirective(Record, frozen=True, kw_only=True):
    """Directives that a site rejects."""

    pattern: Line  # A regular expression, searched in what follows #PBS or #SBATCH.
    why: Line  # What is wrong with it, and what to use.
    warns: bool = False  # Warns only.

    def fits(self, directive: str) -> bool:
        """Return whether `directive` matches; only its first 200 characters count, as a pattern may be slow."""
        return re.search(self.pattern, directive[:200]) is not None


class Refusal(Record, frozen=True, kw_only=True):
    """Where to look after the scheduler refused a job."""

    option: Line  # The option, in words.
    key: Line  # The profile's key; {partition} is the job's.


class Example(Record, frozen=True, kw_only=True):
    """A job whose price the site documents."""

    request: dict[Word, Any]  # By the request's keys, as in hpclaunch.yaml.
    price: Price  # What it costs by the site's documents.


class Messages(Record, frozen=True, kw_only=True):
    """What the words of schedulers, exit codes and error messages mean; the first row that matches counts."""

    # By the reason why a job waits, a pattern with * for any text; JOB in the text is its id.
    waits: dict[Line, Line] = {}
    ends: dict[Line, Line] = {}  # By the reason for a job's end, or its first word.
    exit_codes: dict[int, Line] = {}  # By the exit code.
    signals: dict[Word, Line] = {}  # By the signal that ended a program, as SIGKILL.
    hints: dict[Line, Line] = {}  # What may help, by a regular expression for a line at a log's end.
    refusals: dict[Line, Refusal] = {}  # By a regular expression for the refusal, in lower case.


class Site(Record, frozen=True, kw_only=True):
    """A site profile: how to request nodes of one machine, what it rejects, and what it costs."""

    title: Line  # The machine's full name.
    scheduler: Annotated[Word, Meta(examples=list(SCHEDULERS))]  # slurm, pbs, local, or one that a package adds.
    partitions: Annotated[dict[Word, Partition], Meta(min_length=1)]
    default_partition: Word  # Where a job goes that names none.
    # Which partition a job gets that names none (absent: the default, or the first other that takes it).
    choose: Literal["cheapest", "fastest", "none"] | None = None
    checked: datetime.date | None = None  # When its facts were last compared with their sources.
    docs: Line | None = None  # The user guide's address.
    extends: Word | None = None  # A profile whose keys this one changes.
    template: Word | None = None  # Name of the job script's template (absent: scheduler).
    hostnames: list[Line] = []  # Patterns of its login nodes' names.
    # If the names are not unique: variables and patterns of their values, or paths and `exists`; all count.
    detect: dict[Line, Line] = {}
    launcher: Launcher = "tasks"  # What starts the ranks of a job that names none.
    mpi: Literal["openmpi", "mpich", "pals", "intel"] = "openmpi"  # Whose mpirun or mpiexec it has.
    srun: list[Line] = []  # Further options of srun, which starts the ranks.
    wrapper: Line | None = None  # Words before the command of each rank; $LOCAL_RANK is expanded.
    networks: dict[Word, dict[Variable, Line]] = {}  # Variables of each network; $NAME in a value is expanded.
    network: Word | None = None  # The one of `networks` that jobs use.
    default_walltime: Walltime = "01:00:00"  # Of a job that requests none.
    max_attempts: Count = 1  # How many times a job may run, each after the walltime of the last.
    preflight: bool = False  # Test the nodes before the ranks start.
    warn_before: Walltime = "00:02:00"  # How long before the walltime the ranks are warned.
    grace: Walltime = "00:00:06"  # How long ranks have from TERM to KILL.
    dead_after: Walltime = "00:00:45"  # A node that is silent (PBS: no heartbeat) for longer is dead.
    hang_after: Walltime | None = None  # Ranks that do nothing for so long hang (absent: never).
    resubmit: bool = True  # Jobs may submit jobs (PBS: qsub works on compute nodes).
    account: Word | None = None  # The account to charge if the request has none.
    account_help: Line | None = None  # Printed if there is none (absent: none is needed).
    account_variable: Word | None = None  # The variable that holds the account in a job.
    allocation: Allocation | None = None
    confirm_above: Price | None = None  # Submitting what may cost more needs a confirmation.
    examples: list[Example] = []  # Jobs with a documented price, for `hpclaunch site test`.
    waiting: list[Line] = []  # Why jobs wait here, in words.
    # A job on several nodes may share them, must request whole ones, or is given and charged whole ones.
    multi_node: Literal["shared", "whole", "exclusive"] = "shared"
    ask_memory: bool = False  # Every job requests memory, not only if the user does.
    ask_jobfs: bool = False  # Every job requests node-local disk.
    storage: list[Word] = []  # File systems that a job must name to see them.
    # File systems by the folder above them: with /g/data: gdata, /g/data/ab12 is gdata/ab12.
    storage_roots: dict[Line, Word] = {}
    storage_given: list[Line] = []  # File systems that need no naming; {account} is the job's.
    home_gb: Amount | None = None  # The size of a home folder, if it is small.
    expiring: dict[Line, Count] = {}  # Folders whose unused files are deleted after so many days.
    only_on: dict[Line, list[Word]] = {}  # Folders that only these partitions can see.
    internet: bool | None = None  # Its nodes have internet access (absent: not known).
    removed_commands: dict[Word, Line] = {}  # Commands that no longer exist, and what to use instead.
    # Commands that only this site has: what each stands for (accelerate launch), or null.
    own_commands: dict[Word, Line | None] = {}
    refused_directives: list[RefusedDirective] = []  # Directives that the site rejects.
    module_paths: list[Line] = []  # Folders for `module use`.
    module_purge: bool = False  # Unload all modules before the first is loaded.
    modules: list[Line] = []  # Loaded if the request names none.
    setup: list[Line] = []  # Lines of shell, after modules and environment.
    teardown: list[Line] = []  # Lines of shell at the job's end, however it ends.
    env: dict[Variable, Line] = {}  # Exported in the job; $NAME in a value is expanded.
    datasets: dict[Variable, Line] = {}  # Data of bundled workloads, by variable; $NAME is expanded.
    directives: list[Line] = []  # Directives for every job, as after #PBS or #SBATCH.
    # Partitions and QoS that only some users may use and that this profile does not describe.
    restricted: list[Word] = []
    # The account's directive (absent: -A {account} of PBS, --account={account} of Slurm).
    account_directive: OptionalLine | None = None
    account_pattern: Line | None = None  # A regular expression that the whole account must match.
    # PBS: words of each chunk of select; one whose {cpus}, {gpus}, {mem} or {tasks} is none is left out.
    chunk: tuple[Line, ...] = ("ncpus={cpus}", "ngpus={gpus}", "mem={mem}gb", "mpiprocs={tasks}")
    place: OptionalLine = "scatter"  # PBS: how the chunks are placed.
    totals: bool = False  # PBS: jobs request totals (ncpus, ngpus, mem, jobfs) and no chunks.
    gpu_directive: OptionalLine = "--gres=gpu:{gpus}"  # Slurm: the directive for {gpus} GPUs of each node ("": none).
    omit: list[Omitted] = []  # What comes by itself, so that no directive may request it.
    storage_directive: Line = "-l storage={names}"  # PBS: the directive of the file systems, {names}.
    storage_join: Word = "+"  # What stands between their names.
    storage_whole: bool = False  # A root is one file system: /eagle/ab12 is eagle.
    umask: Umask | None = None  # The job's umask, in quotes.
    any_partition: bool = False  # A partition that is not listed may be named; no limits are known.
    arrays: bool = True  # Accepts job arrays.
    max_array: Count | None = None  # Jobs of one array, at most.
    rerunnable: bool = True  # Jobs may run again by default; PBS accepts only such jobs as arrays.
    poll: Walltime = "00:00:02"  # The shortest time between two automatic queries of the scheduler.
    master_suffix: Word | None = None  # Of the head node's name in MASTER_ADDR, if that name exists.
    container: Container = Container()  # How --container runs the command in an image.
    local_disk: Line | None = None  # The folder of a node's own disk (absent: $TMPDIR or /tmp).
    messages: Messages = Messages()  # What the site adds to what `hpclaunch why` says.
    unconfirmed: list[str] = []  # Keys that only warn, as their source is weak.

    @property
    def account_form(self) -> str:
        """Return the directive of any {account}, or "" if there is none."""
        own = self.account_directive
        return scheduler(self.scheduler).account_directive if own is None else own

    def at(self, partition: Partition) -> "Site":
        """Return the site with the keys that `partition` has instead."""
        own = {key: value for key in OWN if (value := getattr(partition, key)) is not None}
        return replace(self, **own) if own else self

    def find_partition(self, name: str) -> tuple[str, Partition] | None:
        """Return the partition with the name or alias `name`, and its own name; or None."""
        return next(((own, one) for own, one in self.partitions.items() if name == own or name in one.aliases), None)
