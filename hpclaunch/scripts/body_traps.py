"""What is wrong with the commands of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from hpclaunch.job.checks.downloads import download
from hpclaunch.job.storage import as_named, named_by
from hpclaunch.profile.model import Site
from hpclaunch.profile.yamlfile import Key
from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.launch import Launch, name_of
from hpclaunch.scripts.lexer import plain
from hpclaunch.scripts.program import Program, assignments, modules
from hpclaunch.scripts.ranks import step_size
from hpclaunch.scripts.remark import Remark, remark
from hpclaunch.scripts.shell import Command
from hpclaunch.scripts.values import whole

_PER_RANK = re.compile(r"(?<!\\)\$\{?(SLURM_PROCID|SLURM_NODEID|SLURM_LOCALID)\b")
_PORT = re.compile(
    r"--master[_-]port[= ]([1-9]\d+)|--main[_-]process[_-]port[= ]([1-9]\d+)|--rdzv[_-]endpoint[= ]\S*:([1-9]\d+)"
)


class Script(Struct):
    """What the traps look at: the program, what the directives ask for, the lines of the file."""

    program: Program
    asked: Asked
    lines: list[str]

    @property
    def site(self) -> Site:
        """Return the site."""
        return self.asked.profile.site

    @property
    def slurm(self) -> bool:
        """Tell the scheduler."""
        return self.site.scheduler == "slurm"


def look(script: Script) -> Iterator[Remark]:
    """Yield what there is to say of the commands."""
    for trap in (_fan_out, _ports, _downloads, _retired, _arch, _storage, _devices):
        yield from trap(script)
    if script.slurm:
        yield from _early(script)
        yield from _layout(script)


def _fan_out(script: Script) -> Iterator[Remark]:
    """Find a training that starts on one node only, or under Slurm as one of several tasks.

    Sure of a bare python on GPUs, and of torchrun on one of several nodes; of what else is started it is not known
    whether it starts the other ranks itself.
    """
    asked, starts = script.asked, script.program.starts
    own = [start for start in starts if start.launch.layer("torchrun", "accelerate")]
    trainings = [start for start in starts if start.launch.python or start in own]
    reach = any(start.launch.layer("srun", "mpirun", "pbsdsh", "ssh", "deepspeed") for start in starts)
    if reach or not trainings or any(_reaches(command) for command in script.program.body.commands()):
        return
    start = trainings[-1]
    tasks = asked.nodes if start in own else asked.nodes * (asked.starts if script.slurm else 1)
    if tasks <= 1:
        return
    what = " ".join(start.command.words[:3])[:60]
    bare = start in own or start.launch.bare
    if not bare:
        text = f"`{what}` is started once, the job has {tasks} {'tasks' if script.slurm else 'nodes'}: right if it "
        yield remark("fan-out", start.launch.line, text + "starts the others itself", refuses=False)
    elif not asked.gpus:
        text = f"`{what}` is one process on one node, the job has {tasks} {'tasks' if script.slurm else 'nodes'}: ask "
        yield remark("fan-out", start.launch.line, text + "for one with more cores, if it uses no more", refuses=False)
    elif script.slurm and start not in own:
        text = (
            f"`{what}` without srun: it runs once, as rank 0 of {tasks}, and waits for the others; begin it with srun"
        )
        yield remark("fan-out", start.launch.line, text, mended=True)
    else:
        how = "srun" if script.slurm else "pbsdsh or mpirun"
        text = f"`{what}` runs on the first of {asked.nodes} nodes only: start it on each, with {how}"
        yield remark("fan-out", start.launch.line, text, mended=True)


def _reaches(command: Command) -> bool:
    """Tell whether a command brings work to other nodes: Ray's head, GNU parallel with a list of hosts."""
    head, rest = (name_of(command.words[0]), command.words[1:]) if command.words else ("", [])
    return (head == "ray" and rest[:1] == ["start"]) or (
        head == "parallel" and any(re.match(r"-S|--slf|--sshlogin", word) for word in rest)
    )


def _early(script: Script) -> Iterator[Remark]:
    """Find variables of a task that the batch shell expands."""
    several = {"SLURM_NODEID": script.asked.nodes > 1, "SLURM_LOCALID": script.asked.starts > 1,
               "SLURM_PROCID": script.asked.nodes * script.asked.starts > 1}  # fmt: skip
    for statement in script.program.body.statements:
        if statement.block == "function":
            continue
        for command in statement.commands:
            text = re.sub(r'"[^"]*"', lambda quoted: quoted[0].replace("'", ""), " ".join(command.words))
            text = re.sub(r"'[^']*'", "", text)
            if (found := _PER_RANK.search(text)) and several[found[1]]:
                what = f"${found[1]} is expanded here, by the batch shell: 0 for every task; write it inside of "
                yield remark("early-variable", command.line, what + "srun bash -c '...', in single quotes", mended=True)


def _ports(script: Script) -> Iterator[Remark]:
    asked = script.asked
    most = asked.partition.gpus_per_node
    exclusive = any(text.startswith("--exclusive") for _, text in asked.carried)
    if asked.nodes > 1 or exclusive or not 0 < asked.gpus < most:
        return
    for command in script.program.body.commands():
        ports = [value for name, value, _ in assignments(command) if name == "MASTER_PORT"]
        if command.words and command.words[0] != "echo":
            ports += [next(filter(None, found)) for found in _PORT.findall(" ".join(command.words))]
        for port in ports:
            if re.fullmatch(r"[\"']?[1-9]\d{3,4}[\"']?", port):
                variable = "SLURM_JOB_ID" if script.slurm else "PBS_JOBID"
                text = f"port {port} is fixed, other jobs share the node ({asked.gpus} of {most} GPUs): make it of "
                yield remark("fixed-port", command.line, f"{text}${variable}", mended=True)


def _downloads(script: Script) -> Iterator[Remark]:
    site, part = script.site, script.asked.partition
    reaches = part.internet if part.internet is not None else site.internet
    if reaches is not False:
        return
    better = [name for name, other in site.partitions.items() if other.internet]
    for command in script.program.body.commands():
        if what := download([plain(word) or word for word in command.split()[1]]):
            where = f"; use partition {' or '.join(better)}, or fetch it beforehand" if better else ""
            name = script.asked.values.get("partition") or site.default_partition
            known = site.find_partition(name) if part.internet is not None else None
            key: Key = ("partitions", known[0], "internet") if known else ("internet",)
            yield remark("download", command.line, f"{what}: the nodes of {name} have no internet{where}", key=key)


def _retired(script: Script) -> Iterator[Remark]:
    for command in script.program.body.commands():
        words = command.split()[1]
        head = name_of(words[0]) if words else ""
        if instead := script.site.removed_commands.get(head):
            text = f"{head} is gone from {script.asked.profile.name}: use {instead}"
            yield remark("commands", command.line, text, mended=True, key=("removed_commands", head))


def _arch(script: Script) -> Iterator[Remark]:
    """Compare the modules with those that come before the site's own on this partition (arch/a100)."""
    site, needed = script.site, script.asked.partition.modules
    families = {module.partition("/")[0] for module in site.modules}
    others = {module: name for name, part in site.partitions.items() for module in part.modules if module not in needed}
    loaded = list(modules(script.program.body))
    first = next((i for i, (_, module) in enumerate(loaded) if module.partition("/")[0] in families), None)
    names = [module for _, module in loaded]
    where = script.asked.values.get("partition") or site.default_partition
    for line, module in loaded:
        if module in others:
            right = f"use {needed[0]}" if needed else "leave it out"
            key = ("partitions", others[module], "modules")
            yield remark("modules", line, f"{module} is not for partition {where}: {right}", mended=True, key=key)
            return
    for module in needed if first is not None else ():
        line, family = loaded[first or 0]
        # cpuarch/ is Jean-Zay's older word for its arch/ modules; no other site has such a pair, so it has no key.
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


def _storage(script: Script) -> Iterator[Remark]:
    has = [as_named(script.site, name) for name in script.asked.values.get("storage", [])]
    needed = needed_storage(script.asked, script.lines)
    missing = [name for name in needed if name not in has]
    for name in missing:
        text = f"a path in {name}, which the job does not see: write -l storage={'+'.join([*has, *missing])}"
        yield remark("storage", needed[name], text, mended=True)


def _devices(script: Script) -> Iterator[Remark]:
    """Compare the counts that the command names with those that the job has."""
    for start in script.program.main:
        layer = start.launch.layer("torchrun")
        if layer:
            nnodes, per_node = layer.options.get("nnodes", ""), layer.options.get("nproc-per-node", "")
            ranks = whole(per_node)
            if whole(nnodes) not in (None, script.asked.nodes):
                text = f"torchrun for {nnodes} nodes, the directives ask for {script.asked.nodes}"
                yield remark("trainer", start.launch.line, text, mended=True)
            if ranks and script.asked.gpus and ranks != script.asked.gpus:
                text = (
                    f"torchrun starts {per_node} ranks on a node, the directives ask for {script.asked.gpus} GPUs there"
                )
                more = ranks > script.asked.gpus
                yield remark("trainer", start.launch.line, text, refuses=more, mended=not more)
        for option, value in _pairs(start.launch):
            have = script.asked.nodes if "node" in option else script.asked.gpus
            if re.fullmatch(r"\d{1,6}", value) and have and int(value) != have and int(value) > 0:
                what = "nodes" if "node" in option else "GPUs on a node"
                text = f"{option} {value}: the directives ask for {have} {what}"
                # Without Slurm's variables Lightning takes a part of the GPUs that it sees, and the others idle.
                idle = not script.slurm and "node" not in option and int(value) < have
                text += "; the others idle" if idle else ""
                yield remark("trainer", start.launch.line, text, refuses=not idle)


def _pairs(launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield Lightning's own settings among the command's arguments."""
    words = [plain(word) or word for word in launch.words]
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        bare = name.lstrip("-").replace("-", "_").removeprefix("trainer.")
        if bare in ("num_nodes", "devices") and (equals or name.startswith("--")):
            yield name, value if equals else words[i + 1] if i + 1 < len(words) else ""


def _layout(script: Script) -> Iterator[Remark]:
    gpus = script.asked.gpus
    for start in script.program.main:
        srun = start.launch.layer("srun")
        own = start.launch.layer("torchrun", "accelerate", "deepspeed")
        per_node = step_size(script.asked, start.launch)[1]
        line = script.asked.size_line or start.launch.line
        if srun and own and per_node > 1:
            text = f"{per_node} tasks on a node start {own.kind} {per_node} times: write --ntasks-per-node=1"
            yield remark("layout", line, text, mended=True)
        elif srun and not own and start.launch.python and 1 < per_node < gpus:
            text = f"{per_node} tasks on a node for {gpus} GPUs: write --ntasks-per-node={gpus}, one for each"
            yield remark("layout", line, text)
