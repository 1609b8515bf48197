"""What is wrong with the commands of a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hpclaunch.job.checks.downloads import download
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.yamlfile import Key
from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.launch import Launch, Program, assignments, modules, opened, replaced
from hpclaunch.scripts.pbs_commands import PBS_CHECKS
from hpclaunch.scripts.ranks import step_size
from hpclaunch.scripts.remark import Remark, remark
from hpclaunch.scripts.shell import Command, Word
from hpclaunch.scripts.values import whole

_PORT_OPTIONS = re.compile(r"--(?:master[_-]port|main[_-]process[_-]port|rdzv[_-]endpoint)(?:=|$)")
_STAYS = ("wait", "sleep", "tail", "fg")  # they keep a script from its end
_LOCAL = ("PBS_JOBFS", "TMPDIR")


# What starts a program on every node, and the job's id; whether the scheduler starts tasks itself.
_WORDS = {"slurm": ("srun", "$SLURM_JOB_ID", True), "pbs": ("pbsdsh or mpirun", "$PBS_JOBID", False)}


def look(program: Program, asked: Asked) -> Iterator[Remark]:
    """Yield what there is to say of the commands."""
    for check in (*_EVERYWHERE, *_BY_SCHEDULER.get(asked.profile.site.scheduler, ())):
        yield from check(program, asked)


def lines_that_run(program: Program, asked: Asked, lines: list[str]) -> list[str]:
    """Return the lines of commands, without what is only shown or for other files, and with $HOME as it is set."""
    known = {one.name: str(one.value) for one in program.variables.values() if one.name == "HOME"}
    if (variable := asked.profile.site.account_variable) and (account := _account(asked)):
        known[variable] = account
    found = []
    for number, line in enumerate(lines, 1):
        if number in program.body.quiet or not line.strip() or not line.isprintable() or line.lstrip().startswith("#"):
            continue
        for name, value in known.items():
            line = replaced(line, name, value)  # noqa: PLW2901
        found.append(re.sub(r"(?<![^\s=:\"])~(?=/)", lambda _: known.get("HOME", "~"), line))
    return found


def _words(asked: Asked) -> tuple[str, str, bool]:
    return _WORDS.get(asked.profile.site.scheduler, ("srun", "the job's id", False))


def _account(asked: Asked) -> str | None:
    return asked.values.get("account") or asked.profile.site.account


def _fan_out(program: Program, asked: Asked) -> Iterator[Remark]:
    """Find a training that starts on one node only, or under Slurm as one of several tasks.

    Sure of a bare python on GPUs, and of torchrun on one of several nodes; of what else is started it is not known
    whether it starts the other ranks itself.
    """
    own = [start for start in program.starts if start.layer("torchrun", "accelerate")]
    trainings = [start for start in program.starts if start.python or start in own]
    reach = any(start.layer("srun", "mpirun", "pbsdsh", "ssh", "deepspeed") for start in program.starts)
    if reach or not trainings or any(_reaches(command) for command in program.body.commands):
        return
    start, (starter, _, by_task) = trainings[-1], _words(asked)
    tasks = asked.nodes if start in own or not by_task else asked.nodes * asked.starts
    has = f"the job has {tasks} {'tasks' if by_task else 'nodes'}"
    sure = start in own or start.bare
    if not sure:
        text = f"is started once, {has}: right if it starts the others itself"
    elif not asked.gpus:
        text = f"is one process on one node, {has}: use one with more cores, if it uses no more"
    elif by_task and start not in own:
        text = f"without srun runs once, as rank 0 of {tasks}, and waits for the others; begin it with srun"
    else:
        text = f"runs on the first of {asked.nodes} nodes only: start it on each, with {starter}"
    if tasks > 1:
        text = f"`{' '.join(start.command.words[:3])[:60]}` {text}"
        yield remark("fan-out", start.line, text, refuses=sure and asked.gpus > 0)


def _reaches(command: Command) -> bool:
    """Tell whether a command brings work to other nodes: Ray's head, GNU parallel with a list of hosts."""
    return (command.name == "ray" and command.words[1:2] == ["start"]) or (
        command.name == "parallel" and any(re.match(r"-S|--slf|--sshlogin", word) for word in command.words)
    )


def _ports(program: Program, asked: Asked) -> Iterator[Remark]:
    most = asked.partition.gpus_per_node
    exclusive = any(text.startswith("--exclusive") for _, text in asked.carried)
    if asked.nodes > 1 or exclusive or not 0 < asked.gpus < most:
        return
    for command in program.body.commands:
        ports: list[str] = [one.value for one in assignments(command) if one.name == "MASTER_PORT"]
        for word, after in zip(command.words, [*command.words[1:], ""], strict=False):
            if not command.says and (option := _PORT_OPTIONS.match(word)):
                ports.append((word[option.end() :] or after).rpartition(":")[2])
        for port in ports:
            if re.fullmatch(r"[1-9]\d{3,4}", port):
                text = f"port {port} is fixed, other jobs share the node ({asked.gpus} of {most} GPUs): make it of "
                yield remark("fixed-port", command.line, text + _words(asked)[1])


def _downloads(program: Program, asked: Asked) -> Iterator[Remark]:
    site, part = asked.profile.site, asked.partition
    reaches = part.internet if part.internet is not None else site.internet
    if reaches is not False:
        return
    better = [name for name, other in site.partitions.items() if other.internet]
    offline = {one.name for command in program.body.commands for one in command.settings}
    for command in program.body.commands:
        what = "" if command.says or "ssh" in command.inside else download(command.words)
        if what and not (what.startswith("nextflow") and "NXF_OFFLINE" in offline):
            where = f"; use partition {' or '.join(better)}, or fetch it beforehand" if better else ""
            name = asked.values.get("partition") or site.default_partition
            known = site.find_partition(name) if part.internet is not None else None
            key: Key = ("partitions", known[0], "internet") if known else ("internet",)
            yield remark("download", command.line, f"{what}: the nodes of {name} have no internet{where}", key=key)


def _retired(program: Program, asked: Asked) -> Iterator[Remark]:
    for command in program.body.commands:
        if instead := asked.profile.site.removed_commands.get(command.name):
            text = f"{command.name} is gone from {asked.profile.name}: use {instead}"
            yield remark("commands", command.line, text, key=("removed_commands", command.name))


def _arch(program: Program, asked: Asked) -> Iterator[Remark]:
    """Compare the modules with those that come before the site's own on this partition (arch/a100).

    Where a module is loaded on a condition, or where a job without GPUs prepares what others use, nothing is sure.
    """
    site, needed = asked.profile.site, asked.partition.modules
    families = {module.partition("/")[0] for module in site.modules}
    others = {module: name for name, part in site.partitions.items() for module in part.modules if module not in needed}
    loaded = list(modules(program.body))
    names: list[str] = [module for _, module in loaded]
    first = next((i for i, module in enumerate(names) if module.partition("/")[0] in families), None)
    where = asked.values.get("partition") or site.default_partition
    if asked.partition.free or any(command.inside & {"if", "function"} for command, _ in loaded):
        return
    for command, module in loaded:
        if module in others and asked.gpus:
            right = f"use {needed[0]}" if needed else "leave it out"
            key = ("partitions", others[module], "modules")
            text = f"{module} is not for partition {where}: {right}"
            yield remark("modules", command.line, text, key=key)
            return
    for wanted in needed if first is not None else ():
        command, family = loaded[first or 0]
        kind = wanted.partition("/")[0]  # another module of this kind is its older name: cpuarch/amd for arch/a100
        if wanted not in names and not any(name.partition("/")[0].endswith(kind) for name in names[:first]):
            text = f"{family} on {where} needs `module load {wanted}` before it"
            yield remark("modules", command.line, text)
        elif wanted in names and names.index(wanted) > (first or 0):
            text = f"{wanted} must be loaded before {family}, line {command.line}"
            yield remark("modules", loaded[names.index(wanted)][0].line, text)


def _texts(program: Program) -> Iterator[tuple[int, Word]]:
    """Yield (line, word) for what commands take, write and set; not what they only show, or run elsewhere."""
    for command in program.body.commands:
        if not command.says and "ssh" not in command.inside:
            items = [item for one in command.settings for item in one.items or [one.value]]
            for word in opened([*command.words, *items, *command.files], program.variables):
                yield command.line if "\n" not in word else word.line or command.line, word


def _storage(program: Program, asked: Asked) -> Iterator[Remark]:
    """Find paths in file systems that the job does not name."""
    site, account = asked.profile.site, _account(asked)
    has = [as_named(site, name) for name in asked.values.get("storage", [])]
    variable, missing = site.account_variable, dict[str, int]()
    for line, word in _texts(program) if site.storage_roots else ():
        text: str = word
        if variable and variable in word.expands and account:
            text = replaced(text, variable, account)
        for name in named_by(site, account, [text]):
            if name not in has:
                missing.setdefault(name, line)
    for name, line in missing.items():
        text = f"a path in {name}, which the job does not see: write -l storage={'+'.join([*has, *missing])}"
        yield remark("storage", line, text)


def _jobfs(program: Program, asked: Asked) -> Iterator[Remark]:
    """Find a node-local disk that is used and not asked for."""
    needed = asked.profile.site.ask_jobfs and asked.partition.jobfs_gb_per_node
    if not needed or "jobfs_gb" in asked.values | asked.lines:
        return
    used = [(line, name) for line, word in _texts(program) for name in _LOCAL if name in word.expands]
    for line, name in used[:1]:
        text = f"${name} lies on the node's own disk, of which a job gets little unless it asks: write -l jobfs="
        yield remark("jobfs", line, text)


def _wait(program: Program, _asked: Asked) -> Iterator[Remark]:
    """Find a start in the background that the script's end kills."""
    commands = program.body.commands
    starts = {id(start.command) for start in program.starts}
    behind = [i for i, one in enumerate(commands) if id(one) in starts and "background" in one.inside]
    stays = (
        one.name in _STAYS or (i > behind[-1] and id(one) in starts)
        for i, one in enumerate(commands)
        if behind and (i > behind[-1] or one.function or "loop" in one.inside)
    )
    if behind and not any(stays):
        last = commands[behind[-1]]
        text = f"`{' '.join(last.words[:3])[:60]} ... &`, and the script ends, which ends the job: add wait"
        yield remark("wait", last.line, text)


def _devices(program: Program, asked: Asked) -> Iterator[Remark]:
    """Compare the counts that the command names with those that the job has."""
    for start in program.main:
        if layer := start.layer("torchrun"):
            nnodes, per_node = layer.options.get("nnodes", ""), layer.options.get("nproc-per-node", "")
            ranks = whole(per_node)
            if whole(nnodes) not in (None, asked.nodes):
                text = f"torchrun for {nnodes} nodes, the directives ask for {asked.nodes}"
                yield remark("trainer", start.line, text)
            if ranks and asked.gpus and ranks != asked.gpus:
                text = f"torchrun starts {ranks} ranks on a node, the directives ask for {asked.gpus} GPUs there"
                more = ranks > asked.gpus
                yield remark("trainer", start.line, text, refuses=more)
        for option, value in _pairs(start):
            have, what = (asked.nodes, "nodes") if "node" in option else (asked.gpus, "GPUs on a node")
            count = whole(value)
            if count and have and count != have:
                # Without Slurm's variables Lightning takes a part of the GPUs that it sees, and the others idle.
                idle = not _words(asked)[2] and "node" not in option and count < have
                text = f"{option} {value}: the directives ask for {have} {what}{'; the others idle' if idle else ''}"
                yield remark("trainer", start.line, text, refuses=not idle)


def _pairs(launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield Lightning's own settings among the command's arguments."""
    for word, after in zip(launch.words, [*launch.words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        bare = name.lstrip("-").replace("-", "_").removeprefix("trainer.")
        if bare in ("num_nodes", "devices") and (equals or name.startswith("--")):
            yield name, value if equals else after


def _early(program: Program, asked: Asked) -> Iterator[Remark]:
    """Find variables of a task that the batch shell expands."""
    several = {"SLURM_NODEID": asked.nodes > 1, "SLURM_LOCALID": asked.starts > 1,
               "SLURM_PROCID": asked.nodes * asked.starts > 1}  # fmt: skip
    for command in program.body.commands:
        if command.says or command.inside & {"function", "shell", "ssh", "trap"}:
            continue
        expanded = frozenset[str]().union(
            *(one.expands for one in command.words), *(one.value.expands for one in command.settings)
        )
        for name in [name for name in several if several[name] and name in expanded][:1]:
            text = f"${name} is expanded here, by the batch shell: 0 for every task; write it inside of "
            yield remark("early-variable", command.line, text + "srun bash -c '...', in single quotes")


def _layout(program: Program, asked: Asked) -> Iterator[Remark]:
    for start in program.main:
        if start.layer("srun") is None:
            continue
        own, per_node = start.layer("torchrun", "accelerate", "deepspeed"), step_size(asked, start)[1]
        line = asked.size_line or start.line
        if own and per_node > 1:
            text = f"{per_node} tasks on a node start {own.kind} {per_node} times: write --ntasks-per-node=1"
            yield remark("layout", line, text)
        elif not own and start.python and 1 < per_node < asked.gpus:
            text = f"{per_node} tasks on a node for {asked.gpus} GPUs: write --ntasks-per-node={asked.gpus}"
            yield remark("layout", line, f"{text}, one for each")


def _signal(program: Program, asked: Asked) -> Iterator[Remark]:
    """Find a --signal for the steps of a job that has none."""
    given = [(line, text) for line, text in asked.carried if re.match(r"--signal[= ](?!R?B)", text)]
    if given and program.starts and not any(start.layer("srun", "mpirun") for start in program.starts):
        line, text = given[-1]
        text += ": it goes to what srun starts, and nothing is; begin the program with srun"
        yield remark("signal", line, text)


_Check = Callable[[Program, Asked], Iterator[Remark]]
_EVERYWHERE: tuple[_Check, ...] = (*(_fan_out, _ports, _downloads, _retired, _arch, _storage, _jobfs, _wait, _devices),)
_BY_SCHEDULER: dict[str, tuple[_Check, ...]] = {
    "slurm": (_early, _layout, _signal),
    "pbs": PBS_CHECKS,
}
