"""Measure what submitting costs: python benchmarks/submit.py [--rounds N], on a machine with Slurm (make cluster-up).

In turns, the time of `hpclaunch submit`, of a bare `sbatch FILE` and of `hpclaunch render`; then, against a srun script
written by hand, the time from a job's start to its first all-reduce, and that of a whole short job, with and without
further attempts. Goals: a submit takes at most a render more than sbatch, the all-reduce comes after at most 1.1 x the
time, and the whole job takes at most 1.05 x.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

HPCLAUNCH = str(Path(sys.executable).with_name("hpclaunch"))
REQUEST = ["--site", "bench", "--nodes", "2", "--tasks-per-node", "2", "--walltime", "00:05:00", "--quiet"]
PROFILE = "extends: jean-zay\ntitle: the cluster at hand\nmodules: []\n"
ALL_REDUCE = """
import os, time
import torch.distributed as dist
import torch
rank, size = int(os.environ.get("RANK", os.environ["SLURM_PROCID"])), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=size)
dist.all_reduce(torch.ones(1))
if rank == 0:
    print("seconds:", time.time() - float(os.environ["JOB_BEGAN"]), flush=True)
os._exit(0)  # torch 2.13 with gloo aborts now and then at exit
"""
DIRECTIVES = """#!/bin/bash
#SBATCH --account={account}
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=20
#SBATCH --output=by-hand-%j.out
"""
BY_HAND = """
export JOB_BEGAN=$(date +%s.%N)
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500 WORLD_SIZE=4
export OMP_NUM_THREADS=1
srun {python} all_reduce.py
"""
# One job runs all scripts in turns, so that whatever else the machine does slows each of them alike.
IN_TURNS = """
for _ in $(seq {rounds}); do
    for script in {scripts}; do
        began=$(date +%s.%N)
        bash "$script.sh" &>/dev/null || exit 1
        echo "$script $began $(date +%s.%N)"
    done
done
"""


def timed(*words: str, stdin: str = "") -> tuple[float, str]:
    """Return how long a command takes, and what it prints."""
    began = time.perf_counter()
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{' '.join(words)}: {done.stderr.strip()}")
    return time.perf_counter() - began, done.stdout.strip()


def first_all_reduce(script: str, output: str) -> float:
    """Run a job and return the seconds from its start to its first all-reduce."""
    _, job = timed("sbatch", "--parsable", "--wait", stdin=script)
    return float(Path(output.format(job=job)).read_text().partition("seconds:")[2].split()[0])


def whole_jobs(scripts: dict[str, str], account: str, rounds: int) -> dict[str, list[float]]:
    """Return how many seconds each of the job scripts takes from its first line to its last."""
    for name, script in scripts.items():
        Path(f"{name}.sh").write_text(script)
    job = DIRECTIVES.format(account=account) + IN_TURNS.format(rounds=rounds, scripts=" ".join(scripts))
    number = timed("sbatch", "--parsable", "--wait", stdin=job)[1]
    seconds: dict[str, list[float]] = {name: [] for name in scripts}
    for line in Path(f"by-hand-{number}.out").read_text().splitlines():
        name, began, ended = line.split()
        seconds[name].append(float(ended) - float(began))
    return seconds


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=11, show_default=True)
@click.option("--account", default="abc@v100", show_default=True)
def main(rounds: int, account: str) -> None:
    """Measure submission and the start of a job."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["XDG_STATE_HOME"] = folder
        Path("site_profiles").mkdir()
        Path("site_profiles/bench.yaml").write_text(PROFILE)
        Path("all_reduce.py").write_text(ALL_REDUCE)
        request = [*REQUEST, "--account", account]
        began = "export JOB_BEGAN=$(date +%s.%N)"
        job = ["--env", "OMP_NUM_THREADS=1", "--setup", began, "--", sys.executable, "all_reduce.py"]
        ours = timed(HPCLAUNCH, "render", *request, *job)[1]
        attempts = timed(HPCLAUNCH, "render", *request, "--max-attempts", "3", *job)[1]
        Path("empty.sh").write_text(timed(HPCLAUNCH, "render", *request, "--", "true")[1] + "\n")
        by_hand = BY_HAND.format(python=sys.executable)
        hand = DIRECTIVES.format(account=account) + by_hand
        seconds: dict[str, list[float]] = {name: [] for name in ("sbatch", "render", "submit", "by hand", "hpclaunch")}
        for _ in range(rounds):
            seconds["sbatch"].append(timed("sbatch", "--hold", "empty.sh")[0])
            seconds["render"].append(timed(HPCLAUNCH, "render", *request, "--", "true")[0])
            seconds["submit"].append(timed(HPCLAUNCH, "submit", *request, "--directive=--hold", "--", "true")[0])
            timed("scancel", "--me")
        for _ in range(max(rounds // 3, 3)):
            seconds["by hand"].append(first_all_reduce(hand, "by-hand-{job}.out"))
            seconds["hpclaunch"].append(first_all_reduce(ours, "hpclaunch-runs/{job}/rank-0.log"))
        seconds |= whole_jobs({"whole-by-hand": by_hand, "whole": ours, "whole-attempts": attempts}, account, rounds)
    median = {name: statistics.median(row) for name, row in seconds.items()}
    for name, value in median.items():
        print(f"{name:14}{value * 1e3:8.0f} ms")
    above = median["submit"] - median["sbatch"]
    ratio = median["hpclaunch"] / median["by hand"]
    print(f"goal: submit at most a render above sbatch ({above * 1e3:.0f} ms): {verdict(above <= median['render'])}")
    print(f"goal: first all-reduce at most 1.1 x by hand ({ratio:.2f}): {verdict(ratio <= 1.1)}")
    for name in ("whole", "whole-attempts"):
        ratio = median[name] / median["whole-by-hand"]
        print(f"goal: {name} job at most 1.05 x by hand ({ratio:.3f}): {verdict(ratio <= 1.05)}")


def verdict(met: bool) -> str:
    """Say whether a goal is met."""
    return "met" if met else "missed"


if __name__ == "__main__":
    main()
