"""What is wrong with the commands of a script."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from hpclaunch.job.directives.asked import Asked
from hpclaunch.schedulers.values import whole
from hpclaunch.scripts.checks import Named, at_line
from hpclaunch.scripts.launch import Program, assignments, is_python, opened, replaced, unwrap
from hpclaunch.scripts.ranks import step_size
from hpclaunch.scripts.shell import Command, Word

_PORT_OPTIONS = re.compile(r"(?:[_-](?:master|process)[_-]port|rdzv[_-]endpoint|MASTER_PORT)[= ](?:\S*:)?(\S+)")
_EDITS = ("sed", "awk", "grep", "perl")  # their words are programs and patterns
_COUNTS = re.compile(r"\w*(nodes?|hosts?|machines?|nnodes)\w*", re.IGNORECASE)  # names of a number of nodes
_STAYS = ("wait", "sleep", "tail", "fg")  # they keep a script from its end

# What starts a program on every node, and the job's id; whether the scheduler starts tasks itself.
_WORDS = {"slurm": ("srun", "$SLURM_JOB_ID", True), "pbs": ("pbsdsh or mpirun", "$PBS_JOBID", False)}


def look(program: Program, asked: Asked) -> Iterator[Named]:
    """Yield what there is to say of the commands."""
    for check in (*_EVERYWHERE, *_BY_SCHEDULER[asked.profile.site.scheduler]):
        yield from check(program, asked)


def texts(program: Program, asked: Asked) -> Iterator[tuple[int, str]]:
    """Yield what the commands run, each with its line: known variables replaced, nothing that is only shown."""
    known = {name: str(program.variables[name].value) for name in ("HOME",) if name in program.variables}
    account = asked.values.get("account") or asked.profile.site.account
    if (variable := asked.profile.site.account_variable) and account:
        known[variable] = account
    outer = {id(command.within) for command in program.body.commands}
    for command in program.body.commands:
        if command.says or command.name in _EDITS or "ssh" in command.inside or id(command) in outer:
            continue
        values = [(one.name, value) for one in command.settings for value in one.items or [one.value]]
        settings = [f"{name}={_quoted(value)}" for name, value in values if "\n" not in value]  # no usage text
        rest = [f">{_quoted(file)}" for file in command.files]
        rest += map(_quoted, opened(command.words[1:], program.variables))
        text = " ".join([*command.words[:1], *settings, *rest])
        for name, value in known.items():
            text = replaced(text, name, value)
        text = re.sub(r"(?<![^\s=:\"])~(?=/)", lambda _: known.get("HOME", "~"), text)
        text = " ".join(text.split("\n")).strip()
        if text and text.isprintable():
            yield command.line, text


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word and "'" not in word else word


def _shown(command: Command) -> str:
    return " ".join(command.words[:3])[:60]


def _fan_out(program: Program, asked: Asked) -> Iterator[Named]:
    """Find a training that starts on one node only, or under Slurm as one of several tasks.

    Sure of a bare python on GPUs, and of torchrun on one of several nodes; of what else is started it is not known
    whether it starts the other ranks itself.
    """
    own = [start for start in program.starts if start.layer("torchrun", "accelerate")]
    scripts = [start for start in program.starts if any(word.endswith(".sh") for word in start.words[:2])]
    trainings = [start for start in program.starts if start.python or start in own] or scripts
    reach = any(start.layer("srun", "mpirun", "pbsdsh", "ssh", "deepspeed") for start in program.starts)
    if reach or not trainings or any(map(_reaches, program.body.commands)):
        return
    start, (starter, _, by_task) = trainings[-1], _WORDS[asked.profile.site.scheduler]
    by_task = by_task and start not in [*own, *scripts]
    tasks = asked.nodes * asked.starts if by_task else asked.nodes
    has = f"the job has {tasks} {'tasks' if by_task else 'nodes'}"
    sure = start in own or start.bare
    if not sure:
        text = f"is started once, {has}: right if it starts the others itself"
    elif not asked.gpus:
        text = f"is one process on one node, {has}: use one with more cores, if it uses no more"
    elif by_task:
        text = f"without srun runs once, as rank 0 of {tasks}, and waits for the others; use srun before it"
    else:
        text = f"runs on the first of {asked.nodes} nodes only; start it on each with {starter}"
    if tasks > 1:
        yield at_line("fan-out", start.line, f"`{_shown(start.command)}` {text}", refuses=sure and asked.gpus > 0)


def _reaches(command: Command) -> bool:
    """Tell whether a command brings work to other nodes: Ray's head, GNU parallel with a list of hosts."""
    words = command.words
    return words[:2] == ["ray", "start"] or (
        command.name == "parallel" and any(re.match(r"-S|--slf|--sshlogin", word) for word in words)
    )


def _ports(program: Program, asked: Asked) -> Iterator[Named]:
    most = asked.partition.gpus_per_node
    exclusive = any(text.startswith("--exclusive") for _, text in asked.carried)
    if asked.nodes > 1 or exclusive or not 0 < asked.gpus < most:
        return
    for command in program.body.commands:
        ports: list[str] = [one.value for one in assignments(command) if one.name == "MASTER_PORT"]
        text = "" if command.says else " ".join(command.words)
        for port in [*ports, *_PORT_OPTIONS.findall(text)]:
            if re.fullmatch(r"[1-9]\d{3,4}", port):
                right = f"derive it from {_WORDS[asked.profile.site.scheduler][1]}"
                text = f"port {port} is fixed, but other jobs share the node ({asked.gpus} of {most} GPUs); {right}"
                yield at_line("fixed-port", command.line, text)


def _wait(program: Program, _asked: Asked) -> Iterator[Named]:
    """Find a last start in the background that the script's end kills."""
    last = program.starts[-1].command if program.starts else None
    if last and "background" in last.inside and not any(one.name in _STAYS for one in program.body.commands):
        text = f"`{_shown(last)} ... &` runs in the background, and the job ends with the script; use wait after it"
        yield at_line("wait", last.line, text)


def _devices(program: Program, asked: Asked) -> Iterator[Named]:
    """Compare the counts that torchrun is given with those that the job has."""
    for start in program.main:
        options = layer.options if (layer := start.layer("torchrun")) else {}
        nodes, ranks = (whole(options.get(name, "")) for name in ("nnodes", "nproc-per-node"))
        if nodes not in (None, asked.nodes):
            text = f"torchrun for {nodes} nodes, but the directives request {asked.nodes}"
            yield at_line("trainer", start.line, text)
        whole_line = not any(word.startswith("$") for word in start.command.words)  # which may have more options
        if layer and whole_line and "nnodes" not in options and asked.nodes > 1 and start.layer("srun"):
            text = f"torchrun without --nnodes trains on each of the {asked.nodes} nodes for itself; use --nnodes="
            yield at_line("trainer", start.line, f"{text}{asked.nodes}, with --rdzv-backend and --rdzv-endpoint")
        if layer and whole_line and "nproc-per-node" not in options and asked.gpus > 1:
            text = f"torchrun without --nproc-per-node starts one rank on a node with {asked.gpus} GPUs; use "
            yield at_line("trainer", start.line, f"{text}--nproc-per-node={asked.gpus}", refuses=False)
        if ranks and asked.gpus and ranks != asked.gpus:
            text = f"torchrun starts {ranks} ranks on a node, but the directives request {asked.gpus} GPUs on each"
            yield at_line("trainer", start.line, text, refuses=ranks > asked.gpus)


def _early(program: Program, asked: Asked) -> Iterator[Named]:
    """Find variables of a task that the batch shell expands."""
    several = {"SLURM_NODEID": asked.nodes, "SLURM_LOCALID": asked.starts, "SLURM_PROCID": asked.nodes * asked.starts}
    own = {name for name, count in several.items() if count > 1}
    for command in program.body.commands:
        words = [*command.words, *(one.value for one in command.settings)]
        found = own & set().union(*(word.expands for word in words))
        if found and not (command.says or command.inside & {"function", "shell", "ssh", "trap"}):
            text = f"the batch shell expands ${min(found)} here: it is 0 for every task; use srun bash -c '...' "
            yield at_line("early-variable", command.line, f"{text}around it")


def _layout(program: Program, asked: Asked) -> Iterator[Named]:
    """Find a launcher that srun starts once for each of a node's tasks."""
    for start in program.main:
        own = start.layer("torchrun", "accelerate", "deepspeed")
        if own and start.layer("srun") and (per_node := step_size(asked, start)) > 1:
            text = f"{own.kind} is started {per_node} times on each node, once by each task; use --ntasks-per-node=1"
            yield at_line("layout", asked.lines.get("tasks_per_node", start.line), text)


def _cores(asked: Asked) -> int:
    """Return the cores of a node, for each of which the nodefile has a line; 0 if not known, or it has one a chunk."""
    return 0 if asked.directives.first("l.select") else asked.partition.cores_per_node or 0


def _pbsdsh(program: Program, asked: Asked) -> Iterator[Named]:
    cores, starts = _cores(asked), [start.command for start in program.starts]
    for command in (one for one in program.body.commands if one.name == "pbsdsh"):
        options = unwrap(command, program.variables, {}).layers[-1].options
        index = options.get("n", "")
        if "u" in options:
            yield at_line("pbsdsh", command.line, "pbsdsh -u is Torque's; use -n INDEX, once for each node")
        elif not options.keys() & {"n", "h", "c"} and cores and (asked.cpus or 1) * asked.nodes > 1:
            # A hostname on each core harms nobody.
            sure = command in starts or any(command is one.within for one in starts)
            text = "pbsdsh without -n starts a copy on each core; use -n INDEX, once for each node"
            yield at_line("pbsdsh", command.line, text, refuses=sure)
        elif asked.nodes > 1 and cores and (0 < (whole(index) or 0) < cores or _by_node(index, command.loop)):
            text = f"pbsdsh -n counts cores, not nodes; use steps of {cores}: 0, {cores}, ..."
            yield at_line("pbsdsh", command.line, text)


def _by_node(index: str, loop: str) -> bool:
    """Tell whether a loop, and not one over all cores, counts 0, 1, 2, ... in the variable `index`."""
    header, name = loop.partition("\n")[0], index.strip("${}")
    over_cores = "NCPUS" in header or ("NODEFILE" in header and not re.search(r"\buniq\b|sort\s+-u", header))
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or over_cores:
        return False
    seq = r"[$`(]*\s*seq\s+(\d+\s+)?(\$\(\([^)]*\)\)|[^\s()`]+)\s*[)`]"
    more = rf"\b{name}(\+\+|\+=1\b|\s*\+\s*1\b)|\+\+{name}\b"
    return re.search(rf"for\s+{name}\s+in\s+(0\s+1\b|\{{0\.\.\w+\}}|{seq})|{more}", loop) is not None


def _relative(words: list[Word]) -> str:
    """Return the program or script that a command runs if its path begins in the current folder, or ""."""
    interpreted = is_python(words[0]) or words[0].name in ("bash", "sh")
    named = [word for word in words[1:] if not word.startswith("-")] if interpreted else words
    if not named or named[0].expands or named[0].startswith("/") or {"-c", "-m"} & set(words[1:3]):
        return ""
    return named[0] if interpreted or "/" in named[0] or named[0].endswith(".py") else ""


def _node_count(program: Program, asked: Asked) -> Iterator[Named]:
    for command in program.body.commands if _cores(asked) else ():
        pairs = [(one.name, one.value) for one in command.settings]
        for word, after in pairwise([*command.words, Word("")]):
            name, equals, _ = word.partition("=")
            pairs += [(name.replace("-", "_"), word if equals else after)] if name.startswith("-") else []
        for name, value in pairs:
            own = [program.variables[used].value.raw for used in value.expands & program.variables.keys()]
            lines = [raw for raw in (value.raw, *own) if "PBS_NODEFILE" in raw and re.search(r"\bwc\s+-l\b", raw)]
            if _COUNTS.fullmatch(name) and not all(re.search(r"\buniq\b|\bsort\s+-u|awk", raw) for raw in lines):
                text = "$PBS_NODEFILE has a line for each core; count its hosts with sort -u $PBS_NODEFILE | wc -l"
                yield at_line("node-count", command.line, text)


def _folder(program: Program, asked: Asked) -> Iterator[Named]:
    """Find relative paths where they are not found: PBS and pbsdsh start programs in the home folder."""
    commands = program.body.commands
    for start in program.starts:
        far, within, file = start.layer("pbsdsh"), start.command.within, _relative(start.words)
        around = [one for one in commands if within and one.within is within] if far else commands
        if not file or (asked.folder and not far) or any(one.name in ("cd", "pushd") for one in around):
            continue
        who = "pbsdsh starts programs" if far else "PBS starts jobs"
        right = f'"$PBS_O_WORKDIR/{file.removeprefix("./")}"' if far else 'cd "$PBS_O_WORKDIR" before it'
        text = f"{who} in the home folder, where there is no {file}; use {right}"
        yield at_line("folder", start.line, text, refuses=not asked.folder)
        if not far:
            return


_Check = Callable[[Program, Asked], Iterator[Named]]
_EVERYWHERE: tuple[_Check, ...] = (_fan_out, _ports, _wait, _devices)
_BY_SCHEDULER: dict[str, tuple[_Check, ...]] = {"slurm": (_early, _layout), "pbs": (_pbsdsh, _node_count, _folder)}
