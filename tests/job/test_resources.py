"""How jobs are requested where nodes, GPUs, accounts and file systems are not asked for as on Gadi or Jean-Zay."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hpclaunch.job.consider import consider, make_plan
from hpclaunch.job.explain import explain
from hpclaunch.job.readback import differences
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.scripts.examine import examine

SITES = Path(__file__).parents[1] / "sites" / "further"
PROFILES = {name: search.load(str(SITES / f"{name}.yaml")) for name in ("chunks", "shapes")}
ACCOUNT = {"chunks": "Alpha", "shapes": "project_465"}


def planned(site: str, **asked):
    """Return the plan and what is said of it."""
    return consider(PROFILES[site], make_request({"account": ACCOUNT[site], "command": ["python", "t.py"]} | asked))


def refused(site: str, **asked) -> list[str]:
    return [str(one) for one in planned(site, **asked)[1] if one.refuses]


def directives(site: str, **asked) -> str:
    """Return the directives of a job that is taken, which are read back to the same plan."""
    asked = {"account": ACCOUNT[site], "command": ["python", "t.py"]} | asked
    plan = make_plan(PROFILES[site], make_request(asked))
    script, _ = render(plan)
    assert [*differences(plan, script)] == []
    return "".join(line + "\n" for line in script.splitlines() if line.startswith(("#PBS", "#SBATCH")))


CHUNKS = [
    ({"nodes": 10}, "select=10:system=polaris\n#PBS -l place=scatter\n#PBS -l filesystems=home\n"),
    ({"nodes": 2, "partition": "plain"}, "select=2\n#PBS -l place=scatter\n"),
    ({"nodes": 2, "partition": "derecho"}, "select=2:ncpus=64:ngpus=4\n#PBS -l filesystems"),
    ({"partition": "derecho", "gpus_per_node": 1, "mem_gb": 9}, "select=1:ncpus=64:ngpus=1:mem=9GB\n"),
    ({"partition": "derecho", "env": {"A": "/lus/eagle/x"}}, "#PBS -l filesystems=home:eagle\n"),
]


@pytest.mark.parametrize(("asked", "text"), CHUNKS)
def test_nodes_are_asked_for_in_chunks(asked, text):
    """PBS gets select with the profile's words, those without a number left out, and the account by -A."""
    lines = directives("chunks", **asked)
    assert "#PBS -A Alpha\n" in lines
    assert text in lines


SHAPES = [
    ("small-g", {"gpus_per_node": 2}, "--gpus-per-node=2\n#SBATCH --cpus-per-task=14\n"),
    ("leonardo", {}, "--gres=gpu:4\n#SBATCH --cpus-per-task=32\n"),
    ("fir", {}, "--gpus-per-node=h100:4\n"),
    ("setonix", {"nodes": 2}, "--ntasks-per-node=1\n#SBATCH --gres=gpu:8\n#SBATCH --time="),
    ("adastra", {}, "--constraint=MI250\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=64\n"),
    ("marenostrum", {}, "--account=project_465\n#SBATCH --qos=acc_ehpc\n"),
    ("leonardo", {"nodes": 70}, "#SBATCH --qos=bprod\n"),
    ("leonardo", {"walltime": "48h"}, "#SBATCH --qos=lprod\n"),
]


@pytest.mark.parametrize(("partition", "asked", "text"), SHAPES)
def test_gpus_and_qos_are_asked_for_as_the_profile_says(partition, asked, text):
    """Slurm gets the profile's directive for GPUs, what comes by itself is left out, a mandatory QoS is named."""
    lines = directives("shapes", partition=partition, launcher="torchrun", **asked)
    assert text in lines
    assert "--mem" not in lines


@pytest.mark.parametrize("launcher", ["tasks", "torchrun"])
@pytest.mark.parametrize(
    ("site", "partition"), [(name, part) for name, one in PROFILES.items() for part in one.site.partitions]
)
def test_every_script_is_read_back(site, partition, launcher):
    """What a job's directives request is its plan, on one node and on several, with all GPUs or one."""
    account = {"account": "project_1-gpu"} if partition == "pack" else {}
    sizes = [{"nodes": n} for n in (1, 2, 10, 70)] + [{"gpus_per_node": 1, "cpus_per_task": 3}]
    taken = 0
    for size in sizes:
        asked = {"partition": partition, "launcher": launcher, **account, **size}
        if not refused(site, **asked):
            taken += bool(directives(site, **asked))
    assert taken


PRICES = [
    # LUMI, runjobs/lumi_env/billing: 0.5 x max(ceil(cores / 8), ceil(GB / 64), GCDs) on small-g, 4 a node on standard-g
    ("small-g", {"gpus_per_node": 1}, "0.5 GPU-hours = 0.5 GPU-hours x 1 h x max(1 GPU, 7 cpus / 8 = 1)"),
    ("small-g", {"gpus_per_node": 1, "mem_gb": 65},
     "1 GPU-hours = 0.5 GPU-hours x 1 h x max(1 GPU, 7 cpus / 8 = 1, 65 GB / 64 GB = 2)"),
    ("small-g", {"gpus_per_node": 1, "cpus_per_task": 17},
     "1.5 GPU-hours = 0.5 GPU-hours x 1 h x max(1 GPU, 17 cpus / 8 = 3)"),
    ("standard-g", {"gpus_per_node": 1}, "4 GPU-hours = 4 GPU-hours x 1 h x 1 node"),
    ("standard-g", {"nodes": 3}, "12 GPU-hours = 4 GPU-hours x 1 h x 3 nodes"),
    # Leonardo: max(cores, 8 x GPUs, memory / memory of a core)
    ("leonardo", {"gpus_per_node": 1}, "8 core-hours = 1 h x max(1 GPU x 8, 8 cpus)"),
    ("leonardo", {"gpus_per_node": 1, "mem_gb": 240}, "16 core-hours = 1 h x max(1 GPU x 8, 8 cpus, 240 GB / 15 GB)"),
    # Isambard: node-hours by the largest share, a GPU 0.25
    ("isambard", {"gpus_per_node": 1}, "0.25 node-hours = 1 h x max(1 GPU / 4, 72 cpus / 288)"),
    ("isambard", {"gpus_per_node": 1, "cpus_per_task": 144}, "0.5 node-hours = 1 h x max(1 GPU / 4, 144 cpus / 288)"),
    ("isambard", {"nodes": 2}, "2 node-hours = 1 h x max(8 GPUs / 4, 576 cpus / 288)"),
]  # fmt: skip


@pytest.mark.parametrize(("partition", "asked", "price"), PRICES)
def test_the_largest_share_is_charged(partition, asked, price):
    """GPUs, cores and memory count by the site's weights, rounded up where it does so; whole nodes as nodes."""
    tasks = {} if asked.get("nodes") else {"tasks_per_node": 1}
    plan, _ = planned("shapes", partition=partition, walltime="1h", **tasks, **asked)
    assert plan.cost.explained == price


LIMITS = [
    ("chunks", {"nodes": 9}, "a job of 9 nodes is below prod's minimum of 10; use --nodes 10"),
    ("chunks", {"nodes": 2}, "use --nodes 10 or --partition debug"),
    ("chunks", {"nodes": 497}, "497 nodes exceed prod's limit of 496; use --nodes 496"),
    ("chunks", {"nodes": 24, "walltime": "03:00:01"},
     "03:00:01 exceeds prod's limit of 03:00:00 for 1-24 nodes; use --walltime 03:00:00"),
    ("chunks", {"nodes": 25, "walltime": "06:00:01"}, "limit of 06:00:00 for 25-99 nodes"),
    ("chunks", {"partition": "debug", "walltime": "00:04:59"},
     "walltime 00:04:59 is below debug's minimum of 00:05:00; use --walltime 00:05:00"),
    ("chunks", {"partition": "debug", "directive": ["-J 1-2"]}, "2 jobs exceed debug's limit of 1 a user"),
    ("chunks", {"partition": "debug", "account": "1x"}, r"1x is no account of chunks, which have the form [A-Za-z]\w*"),
    ("chunks", {"partition": "debug", "directive": ["-l select=1:ncpus=4"]}, "select=1:ncpus=4: select comes from"),
    ("shapes", {"account": "465"}, "465 is no account of shapes"),
    ("shapes", {"partition": "leonardo", "qos": "bprod"}, "1 node is below bprod's minimum of 65"),
    ("shapes", {"partition": "leonardo", "qos": "dbg", "nodes": 9}, "9 nodes exceed dbg's limit of 8; use"),
    ("shapes", {"partition": "leonardo", "nodes": 257}, "257 nodes exceed bprod's limit of 256"),
    ("shapes", {"partition": "setonix", "mem_gb": 9}, "--mem-gb 9: on shapes memory comes with the cores"),
    ("shapes", {"partition": "setonix", "directive": ["--cpus-per-task=8"]}, "comes from the plan"),
    ("shapes", {"directive": ["hetjob"]}, "all nodes of a request are alike"),
]  # fmt: skip


@pytest.mark.parametrize(("site", "asked", "text"), LIMITS)
def test_one_step_beyond_a_limit_is_refused(site, asked, text):
    """The message has the value, the limit, and what to use."""
    assert text in " ".join(refused(site, **asked))


@pytest.mark.parametrize(
    "asked",
    [{"nodes": 10}, {"nodes": 496}, {"nodes": 24, "walltime": "3h"}, {"nodes": 25, "walltime": "6h"},
     {"nodes": 100, "walltime": "24h"}, {"partition": "debug", "walltime": "5m"}],
)  # fmt: skip
def test_limits_themselves_are_allowed(asked):
    """What just fits is taken."""
    assert refused("chunks", **asked) == []


def test_a_part_of_a_whole_node_is_warned_of():
    """A job on a single node of a partition of whole nodes is told what it pays for."""
    _, found = planned("shapes", partition="standard-g", gpus_per_node=1)
    assert "1 node with 1 of 8 GPUs: standard-g charges a job for all 8 GPUs, 4 GPU-hours" in " ".join(map(str, found))


SCRIPTS = {
    "chunks": "#!/bin/bash\n#PBS -A Alpha -q prod\n#PBS -l select=10:system=polaris\n#PBS -l place=scatter\n"
    "#PBS -l walltime=01:00:00,filesystems=eagle:home\ncd $PBS_O_WORKDIR\nmpiexec -n 40 --ppn 4 python t.py\n",
    "shapes": "#!/bin/bash\n#SBATCH -A project_465 -t 2:00:00 -N 2 --ntasks-per-node=4\n"
    "#SBATCH --partition=fir --gpus-per-node=h100:4 -c 12\nsrun python t.py\n",
}


def check(cli, site: str, text: str, *words: str):
    Path("job.sh").write_text(text)
    return cli("check", "--script", "job.sh", "--site", str(SITES / f"{site}.yaml"), *words)


@pytest.mark.parametrize("site", SCRIPTS)
def test_a_script_in_the_sites_own_form_is_understood(cli, work, site):
    """A script that asks so has no errors, and the request made of it asks for the same."""
    assert check(cli, site, SCRIPTS[site]).exit_code == 0
    made = check(cli, site, SCRIPTS[site], "--as-request")
    assert "a model of GPU" not in made.stderr and "select" not in made.stderr
    script = cli(*shlex.split(made.stdout.replace(f"--site {site}", f"--site '{SITES / site}.yaml'"))[1:]).stdout
    for words in {"chunks": ("select=10:system=polaris\n", "-A Alpha\n"), "shapes": ("=h100:4\n", "=2\n")}[site]:
        assert words in script


WRONG = [
    ("chunks", "select=10", "select=9", "a job of 9 nodes is below prod's minimum of 10; use -l select=10"),
    ("chunks", ",filesystems=eagle:home", "", "no file systems requested, and a job on chunks must name some"),
    (
        "chunks",
        "filesystems=eagle:home",
        "filesystems=home\ncd /eagle/x",
        "a path in eagle, which the job does not see",
    ),
    ("chunks", "-A Alpha", "-A 9x", "9x is no account of chunks"),
    ("shapes", "--partition=fir", "--partition=setonix --mem=9G", "--mem=9G: on shapes memory comes with"),
    ("shapes", "--partition=fir", "--partition=setonix", "-c 12: on shapes cores come with the GPUs; leave it out"),
    ("shapes", "-t 2:00:00", "-t 0:59:00", "walltime 00:59:00 is below fir's minimum of 01:00:00"),
]


@pytest.mark.parametrize(("site", "old", "new", "text"), WRONG)
def test_a_script_beyond_a_limit_is_refused(cli, work, site, old, new, text):
    """The same rules hold for scripts of other people."""
    result = check(cli, site, SCRIPTS[site].replace(old, new))
    assert text in result.stdout and result.exit_code == 1


@pytest.mark.parametrize(
    ("site", "old", "new"),
    [("chunks", "select=10:system=polaris", "select=10:ncpus=4+1:ncpus=1"), ("shapes", "srun", "#SBATCH hetjob\nsrun")],
)
def test_nodes_of_several_kinds_are_no_request(cli, work, site, old, new):
    """A heterogeneous job has no command that asks for the same, and the reason is printed."""
    text = (
        SCRIPTS[site].replace("\nsrun", "\n#SBATCH hetjob\nsrun")
        if site == "shapes"
        else SCRIPTS[site].replace(old, new)
    )
    result = check(cli, site, text, "--as-request")
    assert result.exit_code == 1 and "all nodes of a request are alike" in result.stderr


@pytest.mark.parametrize(
    ("asked", "partition"), [("--qos=acc_debug -A project_1", "marenostrum"), ("-A project_1-gpu", "pack")]
)
def test_a_qos_or_an_account_says_where_a_script_runs(asked, partition):
    """Where the QoS or the account's suffix decides, a script needs no partition."""
    report = examine(f"#!/bin/bash\n#SBATCH -t 1:00:00 {asked}\nsrun true\n", PROFILES["shapes"])
    assert report.request and report.request.partition == partition


def test_a_qos_of_another_partition_suggests_it():
    """A request with a QoS that only another partition has is told which one."""
    assert "use --partition marenostrum" in " ".join(refused("shapes", qos="acc_debug"))


def test_words_of_a_chunk_have_an_origin():
    """--explain shows the numbers in select and the profile's line of its fixed words."""
    profile = PROFILES["chunks"]
    plan = make_plan(profile, make_request({"account": "Alpha", "nodes": 10, "command": ["true"]}))
    lines = explain(plan, profile, render(plan)[0], {})
    (select,) = (line for line in lines if "select=" in line.text)
    assert any("chunk.0" in str(origin) or "system=polaris" in str(origin) for origin in select.origins)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('chunk: ["ncpus={cores}"]', "ncpus={cores}: {cores} means nothing here, only {cpus} {gpus} {mem} {tasks}"),
        ('gpu_directive: "--gpus={gpus.real}"', "means nothing here"),
        ('account_directive: "-A {account"', "means nothing here"),
        ('account_pattern: "(a+)+"', "may take forever"),
        ("omit: [gpus]", "omit"),
    ],
)
def test_a_profile_s_mistake_is_named(cli, work, line, wrong):
    """A name that means nothing in a directive, and a pattern that may take forever, are refused with their line."""
    Path("own.yaml").write_text(f"extends: slurm\n{line}\n")
    result = cli("site", "check", "own.yaml")
    assert result.exit_code == 1 and wrong in result.stderr and "own.yaml:2" in result.stderr
