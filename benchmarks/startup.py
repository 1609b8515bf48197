"""python benchmarks/startup.py [--rounds 11] [--no-peers]: what a person waits for on a login node.

Each row is a fresh process that makes a job script for two nodes and submits nothing, beside one that only imports
three of hpclaunch's libraries. All run in turns; `time` is the median, `ratio` the median over the rounds of a row's
time to the bare imports' in the same round, which neighbours on the machine disturb less. `files` counts files and
folders opened, `failed` the calls that find nothing at a path: on a network file system each is a round trip.
strace counts both apart from the clock; an audit hook does not see what C code opens.

The peers are installed into an environment of their own (--venv) when first needed: about 90 MB, no torch.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from operator import truediv
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).with_name("peers.txt")
BARE, OURS, LIGHTEST, MOST = "bare imports", "hpclaunch", "simple-slurm", 1.25

# Each peer's shortest way to a script's text: 2 nodes, 4 tasks on each with 12 cores and a GPU, 1 hour (dask-jobqueue:
# one node). Where the usual call starts a scheduler or submits, what it calls for the text is called instead.
TORCHX = "run --dryrun --scheduler slurm dist.ddp -j 2x4 --cpu 48 --gpu 4 --script train.py"
SCRIPTS = {
    "submitit": """
import submitit
executor = submitit.AutoExecutor("logs", cluster="slurm")
executor.update_parameters(nodes=2, tasks_per_node=4, cpus_per_task=12, gpus_per_node=4, timeout_min=60)
print(executor._executor._make_submission_file_text("python train.py", "1"))
""",
    "simple-slurm": """
from simple_slurm import Slurm
job = Slurm(nodes=2, ntasks_per_node=4, cpus_per_task=12, gpus_per_node=4, time="01:00:00")
job.add_cmd("srun python train.py")
print(job)
""",
    "dask-jobqueue": """
from dask_jobqueue.pbs import PBSJob
print(PBSJob(scheduler="tcp://head:8786", name="train", cores=48, memory="380GB", walltime="01:00:00").job_script())
""",
    "psij-python": """
import sys
from datetime import timedelta
from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
node = ResourceSpecV1(node_count=2, processes_per_node=4, cpu_cores_per_process=12, gpu_cores_per_process=1)
job = Job(JobSpec("python", ["train.py"], resources=node, attributes=JobAttributes(duration=timedelta(hours=1))))
executor = JobExecutor.get_instance("pbs")
executor.generate_submit_script(job, executor._create_script_context(job), sys.stdout)
""",
}


def call(command: list[str], home: Path) -> str:
    """Run `command` as a person's shell would, `home` its home and current folder; return its stdout."""
    # PYTHONDONTWRITEBYTECODE, common in containers, would compile an editable hpclaunch anew each time, and only that.
    left_out = ("HPCLAUNCH_", "XDG_", "DASK_", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)} | {
        "HOME": str(home),
        "PATH": f"{home}:{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise click.ClickException(f"exit code {done.returncode}: {shlex.join(command)}\n{done.stderr or done.stdout}")
    return done.stdout


def peers(venv: Path) -> dict[str, list[str]]:
    """Return the peers' commands, their environment made where it is missing or older than peers.txt."""
    python, installed = venv / "bin" / "python", venv / "installed.txt"
    if not installed.is_file() or installed.read_text() != REQUIREMENTS.read_text():
        click.echo(f"installing peers into {venv}", err=True)
        call([sys.executable, "-m", "venv", str(venv)], Path.home())
        (venv / ".gitignore").write_text("*\n")
        pip = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        report = json.loads(call([*pip, "--dry-run", "--report", "-"], Path.home()))
        if "torch" in {item["metadata"]["name"].lower() for item in report["install"]}:
            raise click.ClickException(f"{REQUIREMENTS}: a peer asks for torch, gigabytes; leave it out")
        call(pip, Path.home())
        installed.write_text(REQUIREMENTS.read_text())
    scripts = {name: [str(python), "-c", text] for name, text in SCRIPTS.items()}
    return {"torchx": [str(venv / "bin" / "torchx"), *TORCHX.split()], **scripts}


def count_files(command: list[str], scratch: Path) -> tuple[int, int]:
    """Return how many files and folders `command` opens, and how many lookups by path fail."""
    with tempfile.TemporaryDirectory() as folder:
        call(["strace", "-ff", "-qq", "-e", "trace=%file", "-o", f"{folder}/trace", *command], scratch)
        lines = [line for path in Path(folder).iterdir() for line in path.read_text(errors="replace").splitlines()]
    opened = re.compile(r'open(at2?)?\(.*?"(?!/dev/|/proc/|/sys/).* = \d+$')
    return sum(bool(opened.match(line)) for line in lines), sum(" = -1 E" in line for line in lines)


def why_not_counted(scratch: Path) -> str | None:
    """Return why files cannot be counted here, None where they can."""
    if not shutil.which("strace"):
        return "strace is not installed"
    try:
        count_files(["true"], scratch)
    except click.ClickException as error:
        return f"strace does not work: {error.message.splitlines()[-1]}"
    return None


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=11, show_default=True)
@click.option("--peers/--no-peers", "with_peers", default=True, help="Measure other packages beside hpclaunch.")
@click.option("--venv", type=click.Path(path_type=Path), default=ROOT / ".venv-peers", help="The peers' environment.")
def main(rounds: int, with_peers: bool, venv: Path) -> None:
    """Measure the start of hpclaunch and its peers."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "srun").write_text("#!/bin/sh\n")  # submitit makes no script without one on PATH
        (scratch / "srun").chmod(0o755)
        commands = {
            BARE: [sys.executable, "-c", "import click, jinja2, yaml"],
            OURS: [str(Path(sys.executable).with_name("hpclaunch")), "render", "--site", "gadi", "--nodes", "2"],
            **(peers(venv.absolute()) if with_peers else {}),
        }
        for name, command in commands.items():  # once beforehand: bytecode, first-run files, the page cache
            if not call(command, scratch).strip() and name != BARE:
                raise click.ClickException(f"{name} printed nothing: {shlex.join(command)}")
        missing = why_not_counted(scratch)
        files = {name: (0, 0) if missing else count_files(command, scratch) for name, command in commands.items()}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                begin = time.perf_counter()
                call(command, scratch)
                times[name].append(time.perf_counter() - begin)

    ratios = {name: statistics.median(map(truediv, row, times[BARE])) for name, row in times.items()}
    print(f"{rounds} rounds, Python {sys.version.split()[0]}\n{'':16}{'time':>9}{'ratio':>7}{'files':>7}{'failed':>8}")
    for name, row in times.items():
        counts = f"{'-':>7}{'-':>8}" if missing else "{:7}{:8}".format(*files[name])
        print(f"{name:16}{statistics.median(row) * 1e3:6.0f} ms{ratios[name]:7.2f}{counts}")
    if missing:
        print(f"files and failed are not counted: {missing}")
    goals = {f"hpclaunch at most {MOST} x bare imports": ratios[OURS] <= MOST}
    if with_peers:
        rivals = ratios.keys() - {BARE, OURS, LIGHTEST}
        goals[f"ahead of every peer but {LIGHTEST}"] = all(ratios[OURS] < ratios[name] for name in rivals)
    print(*(f"goal: {goal}: {'met' if met else 'missed'}" for goal, met in goals.items()), sep="\n")


if __name__ == "__main__":
    main()
