"""The page of each shipped site, made from its profile."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hpclaunch import paths
from hpclaunch.profile import search
from hpclaunch.profile.model import Charge, Partition, Site

NAMES = sorted(path.stem for path in paths.shipped("site_profiles").glob("*.yaml"))
ACCOUNTS = {"gadi": "ab12", "jean-zay": "abc@v100", "lumi": "project_465000001", "setonix": "abc-gpu"}
GUIDES = (Path(__file__).parents[1] / "sites.md").read_text()


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a table, without the columns that are empty, or "" if no row is left."""
    columns = [column for column in zip(head.split("|"), *rows, strict=True) if any(column[1:])]
    lines = [
        " | ".join(str(cell or "").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>") for cell in row)
        for row in zip(*columns, strict=True)
    ]
    return (
        "\n".join(f"| {line} |" for line in [*lines[:1], " | ".join(["---"] * len(columns)), *lines[1:]]) + "\n\n"
        if lines[1:]
        else ""
    )


def number(value: float | None, unit: str = "") -> str:
    """Return a number with its unit, or "" if there is none."""
    return f"{value:g}{unit}" if value else ""


def code(words: Iterable[object]) -> str:
    """Return words as code."""
    return ", ".join(f"`{word}`" for word in words)


def memory(gb: float | None) -> str:
    """Return an amount of memory or disk."""
    return number(gb and round(gb, 2), " GB")


def walltimes(part: Partition) -> str:
    """Return the longest walltimes by size."""
    sizes = [
        f" to {tier.max_cores} cores" if tier.max_cores else f" to {tier.max_nodes} nodes" if tier.max_nodes else ""
        for tier in part.walltime
    ]
    if not sizes and part.qos:
        return "by QoS"
    return "\n".join(
        tier.max_walltime + (size or " above" * (len(sizes) > 1))
        for tier, size in zip(part.walltime, sizes, strict=True)
    )


def sizes(part: Partition) -> str:
    """Return the smallest and the largest job."""
    return ", ".join(
        f"{most} {what[:-1]}" if most == 1 else f"{low or 1} to {most} {what}" if most else f"{low} {what} or more"
        for low, most, what in ((part.min_cores, part.max_cores, "cores"), (part.min_nodes, part.max_nodes, "nodes"))
        if low or most
    )


def price(part: Partition) -> str:
    """Return what an hour costs."""
    charge: Charge | None = part.charge
    if not charge:
        return "free" if part.free else "not known"
    shares = [("cores", charge.cores), ("GPUs", charge.gpus), ("GB of memory", charge.mem_gb)]
    counted = [f"{value:.4g} {what}" for what, value in shares if value]
    also = f"; {' or '.join(counted)} count as a {charge.per.replace('gpu', 'GPU')}" if counted else ""
    return f"{charge.rate:g} {charge.unit} an hour for each {charge.per.replace('gpu', 'GPU')}{also}"


def traps(site: Site) -> str:
    """Return what is special in using the site."""
    lines = [f"`{name}`: {part.hint}" for name, part in site.partitions.items() if part.hint]
    lines += [f"`{one.pattern}` in a directive: {one.why}" for one in site.refused_directives]
    lines += [f"`{name}`: {instead}" for name, instead in site.removed_commands.items()]
    lines += [f"A home folder holds {site.home_gb:g} GB."] if site.home_gb else []
    lines += [f"Unused files in `{folder}` are removed after {days} days." for folder, days in site.expiring.items()]
    lines += [f"Only {code(names)} see `{folder}`." for folder, names in site.only_on.items()]
    lines += [f"Not described here, for some users only: {code(site.restricted)}."] if site.restricted else []
    lines += [
        {True: "Compute nodes have internet access.", False: "Compute nodes have no internet access."}.get(
            site.internet, ""
        )
    ]  # type: ignore[arg-type]
    lines += [
        {
            "whole": "A job on several nodes must take whole ones.",
            "exclusive": "A job on several nodes is given and charged whole ones.",
        }.get(site.multi_node, "")
    ]
    lines += [f"Why jobs wait here: {text}." for text in site.waiting]
    return "".join(f"- {line}\n" for line in lines if line) + "\n"


def script(name: str) -> str:
    """Return the command for two nodes and its script."""
    words = ["hpclaunch", "render", "--site", name, "--nodes", "2"]
    if name not in ("local", "slurm", "pbs"):
        words += ["-A", ACCOUNTS.get(name, "abc")]
    if name in ("slurm", "pbs"):
        words += ["--gpus-per-node", "4", "--cpus-per-task", "8"]
    words += ["--", "python", "train.py"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").touch()
        run = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=True)
    said = run.stderr.replace("hpclaunch: ", "", 1)
    return f"```sh\n{shlex.join(words)}\n```\n\n```text\n{said}```\n\n```bash\n{run.stdout}```\n"


def page(name: str) -> str:
    """Return the page of a site."""
    profile = search.load(name)
    site, text = profile.site, profile.layers[0].path.read_text()
    parts = site.partitions.items()
    note = " None of it was tried on the machine." if re.search(r"nothing\W+was tried", text) else ""
    out = f"# {site.title}\n\n`--site {name}`, scheduler {site.scheduler}"
    out += (
        f". Made from [its profile](../profile.md), which was compared with its sources on {site.checked}.{note}\n\n"
        if site.checked
        else ".\n\n"
    )
    out += f"The site's own guide: <{site.docs}>\n\n" if site.docs else ""
    out += "## Partitions\n\n" if list(parts) else ""
    rows = [
        (f"`{key}`" + " (default)" * (key == site.default_partition), one.description, one.cores_per_node,
         f"{one.gpus_per_node} x {one.gpu or 'GPU'}" if one.gpus_per_node else "", memory(one.mem_gb_per_node),
         memory(one.jobfs_gb_per_node))
        for key, one in parts
    ]  # fmt: skip
    out += table("partition|nodes|cores|GPUs|memory|local disk", rows)
    out += table(
        "partition|size of a job|longest walltime|price",
        ((f"`{key}`", sizes(one), walltimes(one), price(one)) for key, one in parts),
    )
    qos = {one.name: one for _, part in parts for one in part.qos}.values()
    rows = [
        (f"`{one.name}`", code(key for key, part in parts if one.name in [q.name for q in part.qos]), one.max_walltime,
         one.max_gpus, one.max_cores, f"{one.min_nodes or 1} to {one.max_nodes}" if one.max_nodes else one.min_nodes)
        for one in qos
    ]  # fmt: skip
    found = table("QoS|partitions|longest walltime|GPUs|cores|nodes", rows)
    out += f"## Quality of service\n\n{found}" if found else ""
    account = [
        site.account_help and f"`-A`: {site.account_help}.",
        site.account_pattern and f"It must match `{site.account_pattern}`.",
    ]
    endings: dict[str, list[str]] = {}
    for key, one in parts:
        endings.setdefault(" or ".join(f"`{end}`" for end in one.account_suffixes), []).append(key)
    account += [f"For {code(keys)} it ends in {end}." for end, keys in endings.items() if end]
    if any(account):
        out += "## Account\n\n" + "\n".join(filter(None, account)) + "\n\n"
    environment = [
        ("launcher", f"`{site.launcher}`"), ("modules", code(site.modules)), ("module paths", code(site.module_paths)),
        ("file systems that a job names", code(site.storage)),
        ("a node's own disk", site.local_disk and f"`{site.local_disk}`"),
        ("network", site.network), ("other networks", code(one for one in site.networks if one != site.network)),
        ("variables of the network", code(f"{a}={b}" for a, b in site.networks.get(site.network or "", {}).items())),
        ("variables", code(f"{a}={b}" for a, b in site.env.items())),
        ("containers", site.container.runtime if "container" in profile.layers[0].data else ""),
        ("folders of images", code(site.container.folders)),
    ]  # fmt: skip
    out += "## Environment, network, containers\n\n" + table("|value", [row for row in environment if row[1]])
    if (found := traps(site)).strip():
        out += f"## What to know\n\n{found}"
    if guide := re.search(
        rf"^## (?:\S+, )*{name}(?:, \S+)*: .*?\n\n(.*?)(?=^## |\Z)", GUIDES, re.DOTALL | re.MULTILINE
    ):
        out += "## Beside the site's own guide\n\nWhat differs [at every site](../sites.md#what-differs-everywhere) "
        out += f"is left out.\n\n{guide[1]}"
    out += f"## The script for two nodes\n\n{script(name)}\n"
    doubts: dict[str, list[str]] = {}
    for key, one in [("the site", site), *parts, *((one.name, one) for one in qos)]:
        if one.unconfirmed:
            doubts.setdefault(code(one.unconfirmed), []).append(key)
    if doubts:
        rows = [(keys, ", ".join(names)) for keys, names in doubts.items()]
        out += "## Not confirmed\n\nNo good source says these; they warn and never refuse.\n\n" + table("keys|of", rows)
    sources = re.findall(r"^#   (\[\S+\])\s+(.*(?:\n#    +.*)*)", text, re.MULTILINE)
    if sources:
        rows = [(tag, re.sub(r"\n#\s*", " ", said)) for tag, said in sources]
        out += "## Sources\n\n" + table("tag in the profile|source", rows)
    return out


def index(markdown: str) -> str:
    """Return docs/sites.md with a list of all sites instead of the sections of some: each has its page."""
    first, everywhere = markdown.split("\n## polaris", maxsplit=1)[0].split("## What differs everywhere")
    everywhere = everywhere.replace("The tables below", "The pages of the sites")
    rows = [
        (f"[{name}](sites/{name}.md)", site.title, site.scheduler, code(site.partitions), str(site.checked or ""))
        for name in NAMES
        for site in [search.load(name).site]
    ]
    overview = table("site|machine|scheduler|partitions|checked", rows)
    return f"{first}## All sites\n\n{overview}## What differs everywhere{everywhere}"
