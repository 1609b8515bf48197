"""What is wrong with the commands of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from hpclaunch.profile.model import Site
from hpclaunch.scripts.asked import Asked, whole
from hpclaunch.scripts.launch import name_of
from hpclaunch.scripts.program import Program, assignments
from hpclaunch.scripts.ranks import step_size
from hpclaunch.scripts.remark import Remark, remark
from hpclaunch.scripts.shell import Command

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
    for trap in (_fan_out, _ports, _devices):
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


def _layout(script: Script) -> Iterator[Remark]:
    for start in script.program.main:
        srun = start.launch.layer("srun")
        own = start.launch.layer("torchrun", "accelerate", "deepspeed")
        per_node = step_size(script.asked, start.launch)[1]
        line = script.asked.size_line or start.launch.line
        if srun and own and per_node > 1:
            text = f"{per_node} tasks on a node start {own.kind} {per_node} times: write --ntasks-per-node=1"
            yield remark("layout", line, text, mended=True)
