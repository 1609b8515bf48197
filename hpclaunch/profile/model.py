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
    about,
)
from hpclaunch.schedulers import SCHEDULERS, scheduler


class Charge(Record, frozen=True, kw_only=True):
    """The price of an hour: the rate times the cores, GPUs or nodes; if others count too, the largest of the shares."""

    unit: Annotated[Line, about("The unit of the price: SU, GPU-hours, core-hours.")]
    per: Annotated[Literal["core", "gpu", "node"], about("What is multiplied by the hours and the rate.")]
    rate: Annotated[Amount, about("Units for one core, GPU or node for one hour.")]
    cores: Annotated[Amount | None, about("So many cores are charged as one (absent: only per core).")] = None
    gpus: Annotated[Amount | None, about("So many GPUs are charged as one; 0.125: a GPU counts as 8.")] = None
    mem_gb: Annotated[Amount | None, about("So many GB are charged as one (absent: memory is free).")] = None
    mem_gb_block: Annotated[Amount | None, about("Memory is charged in blocks of this size (absent: by GB).")] = None
    round_up: Annotated[bool, about("Each share is rounded up.")] = False


class Allocation(Record, frozen=True, kw_only=True):
    """How to ask the site what remains of an account's allocation."""

    command: Annotated[list[Line], about("Word by word; {account}, and {project} without its @suffix.", min_length=1)]
    remaining: Annotated[Line, about("What stands before the remaining amount, a regular expression.")]


class Tier(Record, frozen=True, kw_only=True):
    """The longest walltime for jobs up to a size; each tier is larger than the one before."""

    max_walltime: Annotated[Walltime, about("The longest walltime.")]
    max_cores: Annotated[Count | None, about("Cores of the whole job, at most (absent: any).")] = None
    max_nodes: Annotated[Count | None, about("Nodes of the job, at most (absent: any).")] = None


class Qos(Record, frozen=True, kw_only=True):
    """A quality of service: a class of jobs with its own limits."""

    name: Annotated[Word, about("As in --qos.")]
    max_walltime: Annotated[Walltime, about("The longest walltime.")]
    max_gpus: Annotated[Count | None, about("GPUs of one job, at most.")] = None
    max_cores: Annotated[Count | None, about("Cores of one job, at most.")] = None
    disputed_max_gpus: Annotated[Count | None, about("The largest max_gpus of any source, if they disagree.")] = None
    max_jobs: Annotated[Count | None, about("Jobs of one user, including those of arrays, at most.")] = None
    min_nodes: Annotated[Count | None, about("Nodes of one job, at least.")] = None
    max_nodes: Annotated[Count | None, about("Nodes of one job, at most.")] = None
    min_walltime: Annotated[Walltime | None, about("The shortest walltime that may be requested.")] = None
    default: Annotated[bool, about("Given to a job that names none, so no directive is needed.")] = False
    automatic: Annotated[bool, about("May be chosen for a job that does not name it.")] = True
    unconfirmed: Annotated[list[str], about("Keys that only warn.")] = []


class Partition(Record, frozen=True, kw_only=True):
    """One kind of node and what a job may request of it (Slurm: partition or constraint; PBS: queue)."""

    description: Annotated[Line, about("What its nodes are, in a few words.")] = ""
    aliases: Annotated[list[Word], about("Other names for it.")] = []
    directives: Annotated[list[Line] | None, about("Directives that request it (absent: its name; []: none).")] = None
    constraint: Annotated[bool, Meta(description="Its name is a constraint (-C) and no partition of Slurm's.")] = False
    cores_per_node: Annotated[Count | None, about("Cores that jobs may use on a node.")] = None
    gpus_per_node: Annotated[int, about("GPUs of a node.", ge=0)] = 0
    gpu: Annotated[Line | None, about("The GPU's model.")] = None
    compute_capability: Annotated[Amount | None, about("The GPU's, as NVIDIA defines it; bf16 needs 8.0.")] = None
    vendor: Annotated[Literal["nvidia", "amd", "intel"] | None, about("Who made its GPUs (absent: nvidia).")] = None
    backend: Annotated[Literal["nccl", "xccl"] | None, about("torch's, if the GPUs' is not nccl.")] = None
    arch: Annotated[Literal["x86_64", "aarch64"] | None, about("Of the nodes' processors.")] = None
    rank_cpus: Annotated[list[Cores], about("The cores of each local rank on a whole node, next to its GPU.")] = []
    srun: Annotated[list[Line] | None, about("Further options of srun (absent: the site's).")] = None
    wrapper: Annotated[Line | None, about("Words before the command of each rank (absent: the site's).")] = None
    cpus_per_gpu: Annotated[Count | None, about("Cores that come with each GPU.")] = None
    cpus_per_gpu_exact: Annotated[bool, about("A job must request exactly that many per GPU.")] = False
    mem_gb_per_node: Annotated[Amount | None, about("Memory that jobs may use on a node.")] = None
    default_mem_gb_per_node: Annotated[Amount | None, about("Requested for a whole node (absent: all).")] = None
    jobfs_gb_per_node: Annotated[Amount | None, about("Node-local disk that jobs may use.")] = None
    default_jobfs_gb_per_node: Annotated[Amount | None, about("Requested for a whole node (absent: all).")] = None
    min_cores: Annotated[Count | None, about("Cores of the whole job, at least.")] = None
    max_cores: Annotated[Count | None, about("Cores of the whole job, at most.")] = None
    core_step: Annotated[Count | None, about("Jobs have a multiple of this many cores.")] = None
    walltime: Annotated[list[Tier], about("The longest walltime by size.")] = []
    qos: Annotated[list[Qos], about("In the order in which they are chosen.")] = []
    account_suffixes: Annotated[list[Word], about("The account must end in one of these.")] = []
    modules: Annotated[list[Line], about("Loaded before the site's modules.")] = []
    charge: Charge | None = None
    free: Annotated[bool, about("Jobs cost nothing (neither free nor charge: the price is not known).")] = False
    internet: Annotated[bool | None, about("Its nodes have internet access (absent: as the site's).")] = None
    small_jobs: Annotated[bool, about("Jobs without a size get one core, no GPU (absent: a share of a node).")] = False
    automatic: Annotated[bool, about("May be chosen for a job that names no partition.")] = True
    hint: Annotated[Line | None, about("Printed for users who request this partition by name.")] = None
    min_nodes: Annotated[Count | None, about("Nodes of one job, at least.")] = None
    max_nodes: Annotated[Count | None, about("Nodes of one job, at most.")] = None
    min_walltime: Annotated[Walltime | None, about("The shortest walltime that may be requested.")] = None
    max_jobs: Annotated[Count | None, about("Jobs of one user, including those of arrays, at most.")] = None
    whole_nodes: Annotated[bool, about("Jobs are given and charged whole nodes, also a single one.")] = False
    chunk: Annotated[tuple[Line, ...] | None, about("Instead of the site's.")] = None
    place: Annotated[OptionalLine | None, about("Instead of the site's.")] = None
    gpu_directive: Annotated[OptionalLine | None, about("Instead of the site's.")] = None
    omit: Annotated[list[Omitted] | None, about("Instead of the site's.")] = None
    unconfirmed: Annotated[list[str], about("Keys that only warn, as their source is weak.")] = []


OWN = ("chunk", "place", "gpu_directive", "omit", "srun", "wrapper")  # keys of a partition that stand for the site's


class Container(Record, frozen=True, kw_only=True):
    """How commands run in an image."""

    runtime: Annotated[
        Literal["apptainer", "singularity", "podman-hpc", "pyxis", "charliecloud"], about("What runs images.")
    ] = "apptainer"
    binds: Annotated[list[Line], about("Folders of the node to see inside, as SRC or SRC:DEST.")] = []
    options: Annotated[list[Line], about("Further words for the runtime.")] = []
    folders: Annotated[list[Line], about("Images must lie in one of them; $NAME is expanded.")] = []
    modules: Annotated[list[Line], about("Loaded to have the runtime.")] = []
    gpu_option: Annotated[Line | None, about("Gives it the GPUs (absent: --nv, --rocm or --gpu).")] = None


class RefusedDirective(Record, frozen=True, kw_only=True):
    """Directives that a site rejects."""

    pattern: Annotated[Line, about("A regular expression, searched in what follows #PBS or #SBATCH.")]
    why: Annotated[Line, about("What is wrong with it, and what to use.")]
    warns: Annotated[bool, about("Warns only.")] = False

    def fits(self, directive: str) -> bool:
        """Return whether `directive` matches; only its first 200 characters count, as a pattern may be slow."""
        return re.search(self.pattern, directive[:200]) is not None


class Refusal(Record, frozen=True, kw_only=True):
    """Where to look after the scheduler refused a job."""

    option: Annotated[Line, about("The option, in words.")]
    key: Annotated[Line, about("The profile's key; {partition} is the job's.")]


class Example(Record, frozen=True, kw_only=True):
    """A job whose price the site documents."""

    request: Annotated[dict[Word, Any], about("By the request's keys, as in hpclaunch.yaml.")]
    price: Annotated[Price, about("What it costs by the site's documents.")]


class Messages(Record, frozen=True, kw_only=True):
    """What the words of schedulers, exit codes and error messages mean; the first row that matches counts."""

    waits: Annotated[
        dict[Line, Line],
        about("By the reason why a job waits, a pattern with * for any text; JOB in the text is its id."),
    ] = {}
    ends: Annotated[dict[Line, Line], about("By the reason for a job's end, or its first word.")] = {}
    exit_codes: Annotated[dict[int, Line], about("By the exit code.")] = {}
    signals: Annotated[dict[Word, Line], about("By the signal that ended a program, as SIGKILL.")] = {}
    hints: Annotated[dict[Line, Line], about("What may help, by a regular expression for a line at a log's end.")] = {}
    refusals: Annotated[dict[Line, Refusal], about("By a regular expression for the refusal, in lower case.")] = {}


class Site(Record, frozen=True, kw_only=True):
    """A site profile: how to request nodes of one machine, what it rejects, and what it costs."""

    title: Annotated[Line, about("The machine's full name.")]
    scheduler: Annotated[Word, about("slurm, pbs, local, or one that a package adds.", examples=list(SCHEDULERS))]
    partitions: Annotated[dict[Word, Partition], Meta(min_length=1)]
    default_partition: Annotated[Word, about("Where a job goes that names none.")]
    choose: Annotated[
        Literal["cheapest", "fastest", "none"] | None,
        about("Which partition a job gets that names none (absent: the default, or the first other that takes it)."),
    ] = None
    checked: Annotated[datetime.date | None, about("When its facts were last compared with their sources.")] = None
    docs: Annotated[Line | None, about("The user guide's address.")] = None
    extends: Annotated[Word | None, about("A profile whose keys this one changes.")] = None
    template: Annotated[Word | None, about("Name of the job script's template (absent: scheduler).")] = None
    hostnames: Annotated[list[Line], about("Patterns of its login nodes' names.")] = []
    detect: Annotated[
        dict[Line, Line],
        about("If the names are not unique: variables and patterns of their values, or paths and `exists`; all count."),
    ] = {}
    launcher: Annotated[Launcher, about("What starts the ranks of a job that names none.")] = "tasks"
    mpi: Annotated[Literal["openmpi", "mpich", "pals", "intel"], about("Whose mpirun or mpiexec it has.")] = "openmpi"
    srun: Annotated[list[Line], about("Further options of srun, which starts the ranks.")] = []
    wrapper: Annotated[Line | None, about("Words before the command of each rank; $LOCAL_RANK is expanded.")] = None
    networks: Annotated[
        dict[Word, dict[Variable, Line]], about("Variables of each network; $NAME in a value is expanded.")
    ] = {}
    network: Annotated[Word | None, about("The one of `networks` that jobs use.")] = None
    default_walltime: Annotated[Walltime, about("Of a job that requests none.")] = "01:00:00"
    max_attempts: Annotated[Count, about("How many times a job may run, each after the walltime of the last.")] = 1
    preflight: Annotated[bool, about("Test the nodes before the ranks start.")] = False
    warn_before: Annotated[Walltime, about("How long before the walltime the ranks are warned.")] = "00:02:00"
    grace: Annotated[Walltime, about("How long ranks have from TERM to KILL.")] = "00:00:06"
    dead_after: Annotated[Walltime, about("A node that is silent (PBS: no heartbeat) for longer is dead.")] = "00:00:45"
    hang_after: Annotated[Walltime | None, about("Ranks that do nothing for so long hang (absent: never).")] = None
    resubmit: Annotated[bool, about("Jobs may submit jobs (PBS: qsub works on compute nodes).")] = True
    account: Annotated[Word | None, about("The account to charge if the request has none.")] = None
    account_help: Annotated[Line | None, about("Printed if there is none (absent: none is needed).")] = None
    account_variable: Annotated[Word | None, about("The variable that holds the account in a job.")] = None
    allocation: Allocation | None = None
    confirm_above: Annotated[Price | None, about("Submitting what may cost more needs a confirmation.")] = None
    examples: Annotated[list[Example], about("Jobs with a documented price, for `hpclaunch site test`.")] = []
    waiting: Annotated[list[Line], about("Why jobs wait here, in words.")] = []
    multi_node: Annotated[
        Literal["shared", "whole", "exclusive"],
        about("A job on several nodes may share them, must request whole ones, or is given and charged whole ones."),
    ] = "shared"
    ask_memory: Annotated[bool, about("Every job requests memory, not only if the user does.")] = False
    ask_jobfs: Annotated[bool, about("Every job requests node-local disk.")] = False
    storage: Annotated[list[Word], about("File systems that a job must name to see them.")] = []
    storage_roots: Annotated[
        dict[Line, Word],
        about("File systems by the folder above them: with /g/data: gdata, /g/data/ab12 is gdata/ab12."),
    ] = {}
    storage_given: Annotated[list[Line], about("File systems that need no naming; {account} is the job's.")] = []
    home_gb: Annotated[Amount | None, about("The size of a home folder, if it is small.")] = None
    expiring: Annotated[dict[Line, Count], about("Folders whose unused files are deleted after so many days.")] = {}
    only_on: Annotated[dict[Line, list[Word]], about("Folders that only these partitions can see.")] = {}
    internet: Annotated[bool | None, about("Its nodes have internet access (absent: not known).")] = None
    removed_commands: Annotated[dict[Word, Line], about("Commands that no longer exist, and what to use instead.")] = {}
    own_commands: Annotated[
        dict[Word, Line | None],
        about("Commands that only this site has: what each stands for (accelerate launch), or null."),
    ] = {}
    refused_directives: Annotated[list[RefusedDirective], about("Directives that the site rejects.")] = []
    module_paths: Annotated[list[Line], about("Folders for `module use`.")] = []
    module_purge: Annotated[bool, about("Unload all modules before the first is loaded.")] = False
    modules: Annotated[list[Line], about("Loaded if the request names none.")] = []
    setup: Annotated[list[Line], about("Lines of shell, after modules and environment.")] = []
    teardown: Annotated[list[Line], about("Lines of shell at the job's end, however it ends.")] = []
    env: Annotated[dict[Variable, Line], about("Exported in the job; $NAME in a value is expanded.")] = {}
    datasets: Annotated[dict[Variable, Line], about("Data of bundled workloads, by variable; $NAME is expanded.")] = {}
    directives: Annotated[list[Line], about("Directives for every job, as after #PBS or #SBATCH.")] = []
    restricted: Annotated[
        list[Word], about("Partitions and QoS that only some users may use and that this profile does not describe.")
    ] = []
    account_directive: Annotated[
        OptionalLine | None,
        about("The account's directive (absent: -A {account} of PBS, --account={account} of Slurm)."),
    ] = None
    account_pattern: Annotated[Line | None, about("A regular expression that the whole account must match.")] = None
    chunk: Annotated[
        tuple[Line, ...],
        about("PBS: words of each chunk of select; one whose {cpus}, {gpus}, {mem} or {tasks} is none is left out."),
    ] = ("ncpus={cpus}", "ngpus={gpus}", "mem={mem}gb", "mpiprocs={tasks}")
    place: Annotated[OptionalLine, about("PBS: how the chunks are placed.")] = "scatter"
    totals: Annotated[bool, about("PBS: jobs request totals (ncpus, ngpus, mem, jobfs) and no chunks.")] = False
    gpu_directive: Annotated[OptionalLine, about('Slurm: the directive for {gpus} GPUs of each node ("": none).')] = (
        "--gres=gpu:{gpus}"
    )
    omit: Annotated[list[Omitted], about("What comes by itself, so that no directive may request it.")] = []
    storage_directive: Annotated[Line, about("PBS: the directive of the file systems, {names}.")] = "-l storage={names}"
    storage_join: Annotated[Word, about("What stands between their names.")] = "+"
    storage_whole: Annotated[bool, about("A root is one file system: /eagle/ab12 is eagle.")] = False
    umask: Annotated[Umask | None, about("The job's umask, in quotes.")] = None
    any_partition: Annotated[bool, about("A partition that is not listed may be named; no limits are known.")] = False
    arrays: Annotated[bool, about("Accepts job arrays.")] = True
    max_array: Annotated[Count | None, about("Jobs of one array, at most.")] = None
    rerunnable: Annotated[bool, about("Jobs may run again by default; PBS accepts only such jobs as arrays.")] = True
    poll: Annotated[Walltime, about("The shortest time between two automatic queries of the scheduler.")] = "00:00:02"
    master_suffix: Annotated[Word | None, about("Of the head node's name in MASTER_ADDR, if that name exists.")] = None
    container: Annotated[Container, about("How --container runs the command in an image.")] = Container()
    local_disk: Annotated[Line | None, about("The folder of a node's own disk (absent: $TMPDIR or /tmp).")] = None
    messages: Annotated[Messages, about("What the site adds to what `hpclaunch why` says.")] = Messages()
    unconfirmed: Annotated[list[str], about("Keys that only warn, as their source is weak.")] = []

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
        named = ((own, one) for own, one in self.partitions.items() if name == own or name in one.aliases)
        return next(named, None)
