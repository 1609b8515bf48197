"""What is wrong with the commands of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpclaunch.script.asked import Asked
from hpclaunch.script.launch import Launch, is_python, name_of
from hpclaunch.script.lexer import plain
from hpclaunch.script.program import Program, Start, assignments, modules
from hpclaunch.script.remark import Remark, remark
from hpclaunch.script.shell import Command
from hpclaunch.storage import as_named, named_by

_PER_RANK = re.compile(r"(?<!\\)\$\{?(SLURM_PROCID|SLURM_NODEID|SLURM_LOCALID)\b")
_PORT = re.compile(r"--master[_-]port[= ]([1-9]\d+)|--main[_-]process[_-]port[= ]([1-9]\d+)|--rdzv[_-]endpoint[= ]\S*:([1-9]\d+)")


def look(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    """Yield what there is to say of the commands."""
    slurm = asked.profile.site.scheduler == "slurm"
    for trap in (_fan_out, _ports, _downloads, _retired, _arch, _storage, _devices):
        yield from trap(program, asked, lines)
    for trap in (_early, _layout) if slurm else (_pbsdsh, _node_count, _ncpus, _folder):
        yield from trap(program, asked, lines)


def _fan_out(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    """Find a training that starts on one node only, or under Slurm as one of several tasks."""
    slurm = asked.profile.site.scheduler == "slurm"
    tasks = asked.nodes * (asked.starts if slurm else 1)
    trainings = [start for start in program.starts if start.launch.python or start.launch.layer("torchrun")]
    reach = [start for start in program.starts if start.launch.layer("srun", "mpirun", "pbsdsh", "ssh", "deepspeed")]
    if tasks <= 1 or reach or not trainings:
        return
    start = trainings[-1]
    what = " ".join(start.command.words[:3])[:60]
    if slurm:
        text = f"`{what}` without srun: it runs once, as rank 0 of {tasks}, and waits for the others; begin it with srun"
    else:
        text = f"`{what}` runs on the first of {asked.nodes} nodes only: start it on each, with pbsdsh or mpirun"
    yield remark("fan-out", start.launch.line, text, mended=True)


def _early(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    """Find variables of a task that the batch shell expands."""
    several = {"SLURM_NODEID": asked.nodes > 1, "SLURM_LOCALID": asked.starts > 1,
               "SLURM_PROCID": asked.nodes * asked.starts > 1}  # fmt: skip
    for statement in program.body.statements:
        if statement.block == "function":
            continue
        for command in statement.commands:
            text = re.sub(r"'[^']*'", "", re.sub(r'"[^"]*"', _unquote_inside, " ".join(command.words)))
            if (found := _PER_RANK.search(text)) and several[found[1]]:
                what = f"${found[1]} is expanded here, by the batch shell: 0 for every task; write it inside of "
                yield remark("early-variable", command.line, what + "srun bash -c '...', in single quotes", mended=True)


def _unquote_inside(found: re.Match[str]) -> str:
    return found[0].replace("'", "")


def _ports(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    most = asked.partition.gpus_per_node
    exclusive = any(text.startswith("--exclusive") for _, text in asked.carried)
    if asked.nodes > 1 or exclusive or not 0 < asked.gpus < most:
        return
    for command in program.body.commands():
        ports = [value for name, value, _ in assignments(command) if name == "MASTER_PORT"]
        if command.words and command.words[0] != "echo":
            ports += [next(filter(None, found)) for found in _PORT.findall(" ".join(command.words))]
        for port in ports:
            if re.fullmatch(r"[\"']?[1-9]\d{3,4}[\"']?", port):
                variable = "PBS_JOBID" if asked.profile.site.scheduler == "pbs" else "SLURM_JOB_ID"
                text = f"port {port} is fixed, and other jobs run on the node ({asked.gpus} of {most} GPUs): make it of "
                yield remark("fixed-port", command.line, f"{text}${variable}", mended=True)


def _downloads(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    site, part = asked.profile.site, asked.partition
    reaches = part.internet if part.internet is not None else site.internet
    if reaches is not False:
        return
    better = [name for name, other in site.partitions.items() if other.internet]
    for command in program.body.commands():
        if what := _download(command.split()[1]):
            where = f"; use partition {' or '.join(better)}, or fetch it beforehand" if better else ""
            name = asked.values.get("partition") or site.default_partition
            yield remark("download", command.line, f"{what}: the nodes of {name} have no internet{where}")


def _download(words: list[str]) -> str:
    words = [plain(word) or word for word in words]
    while words and (words[0] in ("srun", "time", "exec") or words[0].startswith("-")):
        words = words[1:]
    if not words:
        return ""
    head, rest = name_of(words[0]), [word for word in words[1:] if not word.startswith("-")]
    if is_python(words[0]) and words[1:3] == ["-m", "pip"]:
        head, rest = "pip", rest[1:]
    far = not any(word in ("localhost", "127.0.0.1") or "://localhost" in word or "://127." in word for word in rest)
    verb = rest[0] if rest else ""
    if head in ("wget", "curl", "aria2c", "gdown", "kaggle", "gsutil", "rclone") and far:
        return head
    if head in ("pip", "pip3") and verb in ("install", "download"):
        local = [word for word in rest[1:] if word.startswith((".", "/")) or word.endswith((".whl", ".txt"))]
        if "--no-index" in words or (rest[1:] and local == rest[1:] and not any(w.endswith(".txt") for w in local)):
            return ""
        return f"{head} {verb}"
    if head in ("conda", "mamba", "micromamba") and verb in ("install", "create", "update", "env"):
        return "" if "--offline" in words or "list" in rest[1:2] else f"{head} {verb}"
    if head == "git" and verb in ("clone", "pull", "fetch") and not any(word.startswith(("/", "./")) for word in rest[1:]):
        return f"git {verb}"
    if (head, verb) in (("huggingface-cli", "download"), ("hf", "download"), ("wandb", "sync"), ("aws", "s3")):
        return f"{head} {verb}"
    if head in ("singularity", "apptainer", "docker", "podman") and verb in ("pull", "build"):
        return f"{head} {verb}" if any("://" in word for word in rest) or head in ("docker", "podman") else ""
    return ""


def _retired(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    for command in program.body.commands():
        words = command.split()[1]
        head = name_of(words[0]) if words else ""
        if instead := asked.profile.site.removed_commands.get(head):
            text = f"{head} is gone from {asked.profile.name}: use {instead}"
            yield remark("commands", command.line, text, mended=True)


def _arch(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    """Compare the modules with those that come before the site's own on this partition (arch/a100)."""
    site, needed = asked.profile.site, asked.partition.modules
    families = {module.partition("/")[0] for module in site.modules}
    others = {module for part in site.partitions.values() for module in part.modules} - set(needed)
    loaded = list(modules(program.body))
    first = next((i for i, (_, module) in enumerate(loaded) if module.partition("/")[0] in families), None)
    names = [module for _, module in loaded]
    where = asked.values.get("partition") or site.default_partition
    for line, module in loaded:
        if module in others:
            right = f"use {needed[0]}" if needed else "leave it out"
            yield remark("modules", line, f"{module} is not for partition {where}: {right}", mended=True)
            return
    for module in needed if first is not None else ():
        line, family = loaded[first or 0]
        if module not in names and not any(name.startswith("cpuarch/") for name in names[:first]):
            text = f"{family} on {where} needs `module load {module}` before it"
            yield remark("modules", line, text, mended=True)
        elif module in names and names.index(module) > (first or 0):
            text = f"{module} must be loaded before {family}, line {line}"
            yield remark("modules", loaded[names.index(module)][0], text, mended=True)


def needed_storage(asked: Asked, lines: list[str]) -> dict[str, int]:
    """Return the file systems that must be named for the paths in a script, each with the first line that needs it."""
    site, account = asked.profile.site, asked.values.get("account") or asked.profile.site.account
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("#"):
            for name in named_by(site, account, [line]):
                found.setdefault(name, number)
    return found


def _storage(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    has = [as_named(asked.profile.site, name) for name in asked.values.get("storage", [])]
    needed = needed_storage(asked, lines)
    missing = [name for name in needed if name not in has]
    for name in missing:
        text = f"a path in {name}, which the job does not see: write -l storage={'+'.join([*has, *missing])}"
        yield remark("storage", needed[name], text, mended=True)


def _devices(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    """Compare the counts that the command names with those that the job has."""
    for start in program.main:
        layer = start.launch.layer("torchrun")
        if layer:
            nnodes, per_node = layer.options.get("nnodes", ""), layer.options.get("nproc-per-node", "")
            if nnodes.isdigit() and int(nnodes) != asked.nodes:
                text = f"torchrun for {nnodes} nodes, the directives ask for {asked.nodes}"
                yield remark("trainer", start.launch.line, text, mended=True)
            if per_node.isdigit() and asked.gpus and int(per_node) != asked.gpus:
                text = f"torchrun starts {per_node} ranks on a node, the directives ask for {asked.gpus} GPUs there"
                more = int(per_node) > asked.gpus
                yield remark("trainer", start.launch.line, text, refuses=more, mended=not more)
        for option, value in _pairs(start.launch):
            have = asked.nodes if "node" in option else asked.gpus
            if re.fullmatch(r"\d{1,6}", value) and have and int(value) != have and int(value) > 0:
                what = "nodes" if "node" in option else "GPUs on a node"
                text = f"{option} {value}: the directives ask for {have} {what}"
                yield remark("trainer", start.launch.line, text)


def _pairs(launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield Lightning's own settings among the command's arguments."""
    words = [plain(word) or word for word in launch.words]
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        bare = name.lstrip("-").replace("-", "_").removeprefix("trainer.")
        if bare in ("num_nodes", "devices") and (equals or name.startswith("--")):
            yield name, value if equals else words[i + 1] if i + 1 < len(words) else ""


def _layout(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    for start in program.main:
        srun = start.launch.layer("srun")
        own = start.launch.layer("torchrun", "accelerate", "deepspeed")
        per_node = asked.starts
        if srun:
            override = srun.options.get("ntasks-per-node", "")
            total = srun.options.get("ntasks", "")
            if override.isdigit():
                per_node = int(override)
            elif total.isdigit() or "NNODES" in total:
                per_node = max(int(total) // asked.nodes, 1) if total.isdigit() else 1
        line = asked.size_line or start.launch.line
        if srun and own and per_node > 1:
            text = f"{per_node} tasks on a node start {own.kind} {per_node} times: write --ntasks-per-node=1"
            yield remark("layout", line, text, mended=True)
        elif srun and not own and start.launch.python and 1 < per_node < asked.gpus:
            text = f"{per_node} tasks on a node for {asked.gpus} GPUs: write --ntasks-per-node={asked.gpus}, one for each"
            yield remark("layout", line, text)


def _pbsdsh(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    known = not asked.profile.site.any_partition
    for start in program.starts:
        layer = start.launch.layer("pbsdsh")
        if layer is None:
            continue
        if "u" in layer.options:
            yield remark("pbsdsh", start.launch.line, "pbsdsh -u is Torque's: use -n INDEX, once for each node", mended=True)
        elif not layer.options.keys() & {"n", "h", "c"} and (asked.cpus or 1) * asked.nodes > 1:
            text = f"pbsdsh without -n starts {'a copy on each core' if known else 'a copy for each line of the nodefile'}"
            yield remark("pbsdsh", start.launch.line, f"{text}: use -n INDEX, once for each node", refuses=known, mended=True)
        elif asked.nodes > 1 and known and _by_node(start, lines):
            step = asked.partition.cores_per_node
            text = f"pbsdsh -n counts cores, not nodes: let the index go in steps of {step}, seq 0 {step} ..."
            yield remark("pbsdsh", start.launch.line, text, mended=True)


def _by_node(start: Start, lines: list[str]) -> bool:
    """Tell whether a loop counts 0, 1, 2, ... and gives that to pbsdsh -n."""
    layer = start.launch.layer("pbsdsh")
    index = re.fullmatch(r'"?\$\{?(\w+)\}?"?', layer.options.get("n", "")) if layer else None
    if not index or start.statement.block != "for":
        return False
    header = lines[start.statement.first - 1]
    name = re.escape(index[1])
    return bool(
        re.search(rf"for\s+{name}\s+in\s+(\{{0\.\.\w+\}}|[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`])", header)
        or re.search(rf"for\s*\(\(.*({name}\+\+|\+\+{name})", header)
    )


def _node_count(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    for command in program.body.commands():
        for word in command.words:
            counts = re.search(r"(\w+)?=?.*\bwc\s+-l\b", word, re.DOTALL)
            if not counts or "PBS_NODEFILE" not in word or re.search(r"\buniq\b|\bsort\s+-u|awk", word):
                continue
            if re.match(r"-{0,2}\w*(nodes?|hosts?|machines?|nnodes)\w*=", word, re.IGNORECASE):
                text = "the nodefile has a line for each core: count the hosts, sort -u $PBS_NODEFILE | wc -l"
                yield remark("node-count", command.line, text, mended=True)


def _ncpus(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    for command in program.body.commands():
        if any(name == "NCPUS" for name, _, _ in assignments(command)):
            text = "NCPUS is PBS's own variable, the cores of the node: use another name"
            yield remark("ncpus-variable", command.line, text, refuses=False)


def _folder(program: Program, asked: Asked, lines: list[str]) -> Iterator[Remark]:
    if asked.folder or any(_moves(command) for command in program.body.commands()):
        return
    for start in program.main:
        if any(_moves(command) for command in start.launch.before):
            continue
        files = [plain(word) or "" for word in start.launch.words if re.search(r"\.(py|sh)[\"']?$", word)]
        if relative := next((file for file in files if file and not file.startswith(("/", "~"))), None):
            text = f'PBS starts jobs in the home folder, where there is no {relative}: add cd "$PBS_O_WORKDIR"'
            yield remark("folder", start.launch.line, text, mended=True)
            return


def _moves(command: Command) -> bool:
    return bool(command.words) and name_of(command.words[0]) in ("cd", "pushd")
