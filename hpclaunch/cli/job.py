"""The commands render, run and launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hpclaunch.cli.echo import json_option, talk
from hpclaunch.cli.options import LAUNCH, job_command
from hpclaunch.cli.requests import launch_request, planned_request, rendered
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan

quiet_option = click.option("--quiet", is_flag=True, help="No summary on stderr, only warnings.")


def summarized(plan: Plan, quiet: bool) -> str:
    """Return the script of a plan; print the summary unless `quiet`, and the warnings, on stderr."""
    script, _ = rendered(plan)
    if not quiet:
        if plan.chosen:
            talk(f"partition {plan.partition_name}: {plan.chosen}")
        talk(plan.summary())
    for warning in plan.warnings:
        talk(f"warning: {warning}")
    return script


@job_command(
    "render", epilog="render -s gadi -N 2 -A ab12 -o job.sh -- python train.py\nrender --explain -- python train.py"
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the script to this file.")
@click.option("--explain", is_flag=True, help="Print the origin of each line of the script.")
@json_option
@quiet_option
def render_command(
    ctx: click.Context, /, output: Path | None, explain: bool, as_json: bool, quiet: bool, **values: Any
) -> None:
    """Print the job script of COMMAND.

    Without a COMMAND, of a bundled workload.
    """
    if as_json and not explain:
        raise click.UsageError("--json goes with --explain: the script itself is text")

    request, profile = planned_request(ctx, values)
    plan = make_plan(profile, request)
    script = summarized(plan, quiet)
    if output is not None:
        if values["env"] and (output.is_file() or not output.exists()):  # not /dev/stdout
            output.touch()
            output.chmod(0o600)
        output.write_bytes(script.encode(errors="surrogateescape"))
    if explain:
        from hpclaunch.cli.explain import show
        from hpclaunch.job.render import render

        plan = plan.hidden()
        show(ctx, plan, profile, render(plan)[0], as_json)
    elif output is None:
        click.echo(script, nl=False)


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
        run(script, job_id, terminal_for_rank=debug_rank is not None, HPCLAUNCH_JOB_ID=job_id)
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
    run(script, plan.run_id, PBS_O_WORKDIR=str(Path.cwd()))
