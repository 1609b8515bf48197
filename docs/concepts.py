"""Print docs/concepts.svg: from a request to the ranks, with the numbers of a real plan. `make docs` writes it."""

from __future__ import annotations

from html import escape

from hpclaunch.job.consider import make_plan
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

STYLE = """
rect { fill: #fff; stroke: #3f51b5; stroke-width: 1.5 }
text { font: 14px system-ui, sans-serif; fill: #1a1a1a; text-anchor: middle }
.name { font-weight: 600 }
.small { font-size: 12.5px; fill: #555 }
.code { font-family: ui-monospace, monospace; font-size: 12.5px }
path { stroke: #3f51b5; stroke-width: 1.5; fill: none; marker-end: url(#end) }
#end path { fill: #3f51b5; stroke: none; marker-end: none }
@media (prefers-color-scheme: dark) {
  rect { fill: #22252e; stroke: #8c9eff } text { fill: #eee } .small { fill: #bbb }
  path { stroke: #8c9eff } #end path { fill: #8c9eff }
}
"""


def box(x: int, y: int, width: int, height: int, *lines: str) -> str:
    """Return a box with a name and further lines; a line that begins with $ is code."""
    shapes = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    for number, line in enumerate(lines):
        kind = "name" if number == 0 else "code" if line.startswith("$") else "small"
        place = y + (height - 19 * len(lines)) / 2 + 19 * number + 15
        shapes += f'<text class="{kind}" x="{x + width / 2}" y="{place}">{escape(line.removeprefix("$"))}</text>'
    return shapes + "\n"


def arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    """Return an arrow between two points."""
    return f'<path d="M{x} {y} L{to_x} {to_y}"/>\n'


def figure() -> str:
    """Return the picture."""
    options = {"account": "ab12", "nodes": 2, "command": ["python", "train.py"]}
    plan = make_plan(search.load("gadi"), make_request(options))
    shapes = box(10, 10, 215, 66, "request", "$--nodes 2 -A ab12", "$-- python train.py")
    shapes += box(255, 10, 215, 66, "site profile", "$site_profiles/gadi.yaml", "limits, prices, modules")
    shapes += arrow(117, 76, 180, 112) + arrow(362, 76, 300, 112)
    size = f"{plan.nodes} nodes, {plan.world_size} ranks, {plan.cpus} cores, {plan.gpus} GPUs"
    shapes += box(60, 114, 360, 66, "plan", size, f"checked, {plan.price}")
    shapes += arrow(240, 180, 240, 212)
    shapes += box(60, 214, 360, 66, "job script", "plain bash", "directives, environment, command; launch")
    for x, words in (
        (78, ("render", "to read, to keep")),
        (240, ("submit", "to the scheduler")),
        (402, ("run", "on this machine")),
    ):
        shapes += arrow(240 + (x - 240) // 2, 280, x, 314) + box(x - 70, 316, 140, 48, *words)
    shapes += arrow(240, 364, 170, 408) + arrow(402, 364, 330, 408)
    shapes += '<rect x="10" y="410" width="460" height="150" rx="6" stroke-dasharray="4 3"/>'
    shapes += '<text class="name" x="240" y="432">ranks</text>'
    shapes += '<text class="small" x="240" y="450">on every site with MASTER_ADDR, RANK, WORLD_SIZE, ...</text>'
    per_node = plan.tasks_per_node
    for node in range(plan.nodes):
        name = "node 0, the head node" if node == 0 else f"node {node}"
        shapes += f'<text class="small" x="{130 + 220 * node}" y="548">{name}</text>'
        for local in range(per_node):
            shapes += box(28 + 220 * node + 53 * local, 470, 45, 56, str(node * per_node + local))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 570" width="480" role="img" '
        'aria-label="request and site profile make a plan, that a job script, that starts the ranks">\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 Z"/></marker></defs>\n{shapes}</svg>\n'
    )


if __name__ == "__main__":
    print(figure(), end="")  # noqa: T201 - it prints
