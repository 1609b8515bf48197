"""The commands that start ranks at once: on this machine, in an allocation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.options import LAUNCH, job_command
from hpclaunch.cli.requests import launch_request, planned_request, quiet_option, summarized
from hpclaunch.job.consider import make_plan


@job_command("run", epilog="run --nodes 2 --tasks-per-node 2 -- python train.py\nrun -s gadi -N 2 --workload env")
@click.option("--debug-rank", type=click.IntRange(min=0), help="Give this rank the terminal, for breakpoint().")
@quiet_option
def run_command(ctx: click.Context, /, debug_rank: int | None, quiet: bool, **values: Any) -> None:
    """Run COMMAND on this machine, on emulated nodes.

    With --site it is a rehearsal: that site's job script, with stand-ins for what only a cluster has. The exit code is
    that of the first rank to fail. Without a COMMAND, a bundled workload.
    """
    from hpclaunch.runs import snapshot
    from hpclaunch.runs.here import check_torch, run
    from hpclaunch.runs.terminal import for_rank
    from hpclaunch.schedulers.run_folder import new_name

    request, profile = planned_request(ctx, values, here=True, starts=True)
    plan = make_plan(profile, request)
    if debug_rank is not None:
        plan = for_rank(plan, debug_rank)
    script = summarized(plan, quiet)
    check_torch(plan)
    if plan.snapshot:
        snapshot.write(plan.snapshot)
    if plan.scheduler.here:
        job_id = new_name("local")
        run(script, job_id, plan, terminal_for_rank=debug_rank is not None, HPCLAUNCH_JOB_ID=job_id)
    from hpclaunch.rehearsal import rehearse

    raise SystemExit(rehearse(plan, script))


@job_command(
    "launch", LAUNCH, epilog="launch -- python train.py\nlaunch -N 1 --tasks-per-node 2 -- python -m pdb train.py"
)
@quiet_option
def launch_command(ctx: click.Context, /, quiet: bool, **values: Any) -> None:
    """Start COMMAND on every node of the current allocation.

    It works in a salloc, a qsub -I, or your own job script, in the current environment. Without a COMMAND, a bundled
    workload.
    """
    import os

    from hpclaunch.runs import allocation
    from hpclaunch.runs.here import run

    found = allocation.find(os.environ)
    request, profile = launch_request(ctx, values, found.scheduler)
    plan = allocation.plan_in(found, profile, request)
    script = summarized(plan, quiet)
    assert plan.run_id is not None  # noqa: S101 - plan_in gives one
    run(script, plan.run_id, plan, PBS_O_WORKDIR=str(Path.cwd()))
