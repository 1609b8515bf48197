"""What it takes to go on inside one allocation: restarts, spare nodes, fewer nodes, a range of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from hpclaunch.job.diagnostic import Found
from hpclaunch.job.plan import Plan

TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"


def restarts(plan: Plan) -> Iterator[Found]:
    """Refuse to start ranks again where the launcher cannot, and to go on with more nodes than there are."""
    request, fewest = plan.request, (plan.fewest_nodes or plan.nodes) - plan.spares
    asked = [name for name in ("max_restarts", "min_nodes", "spares") if getattr(request, name)]
    if asked and plan.launcher != "torchrun":
        options = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        text = f"{options}: the launcher {plan.launcher} cannot start ranks again, only torchrun can"
        yield Found(text, suggestions=[{"launcher": "torchrun"}])
    if request.min_nodes and request.min_nodes > fewest:
        text = f"min-nodes {request.min_nodes} exceeds the {fewest} nodes of the training"
        yield Found(text, suggestions=[{"min_nodes": fewest}])


def node_range(plan: Plan) -> Iterator[Found]:
    """Refuse a range of nodes where a job has a fixed size, and one without a smaller number in front."""
    fewest, most = (plan.fewest_nodes or plan.nodes) - plan.spares, plan.training_nodes
    if plan.fewest_nodes and not plan.scheduler.gives_range:
        text = f"nodes {plan.request.nodes}: {plan.scheduler.name} has no range of nodes, as a job requests totals"
        yield Found(text, suggestions=[{"nodes": most}, {"nodes": fewest}])
    elif fewest > most:
        yield Found(f"nodes {plan.request.nodes}: {fewest} exceeds {most}", suggestions=[{"nodes": f"{most}:{fewest}"}])
