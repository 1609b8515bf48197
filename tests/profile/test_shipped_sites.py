"""The shipped site profiles say what their sources say."""

import re

import pytest
from conftest import SHIPPED

from hpclaunch.job.consider import make_plan
from hpclaunch.job.cost import job_cost
from hpclaunch.job.request import make_request
from hpclaunch.profile import model, search
from hpclaunch.scripts import own

pytestmark = pytest.mark.shipped
FILES = sorted(SHIPPED.glob("*.yaml"))


def shipped(name: str) -> model.Site:
    return search.load(str(SHIPPED / f"{name}.yaml")).site


GADI, JEAN_ZAY = shipped("gadi"), shipped("jean-zay")


def tiers(partition: model.Partition) -> str:
    """Spell the walltimes as `most cores: hours`, the last up to the queue's most cores."""
    return " ".join(f"{t.max_cores or partition.max_cores}:{int(t.max_walltime[:-6])}" for t in partition.walltime)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_profile_is_ready_to_edit(path):
    """Every shipped profile loads without a mistake, tells the editor its schema and keeps to the line length."""
    made = search.load(str(path)).site
    text = path.read_text(encoding="utf-8")
    assert made.find_partition(made.default_partition)
    assert text.startswith("# yaml-language-server: $schema=site.schema.json\n")
    assert max(map(len, text.splitlines())) <= 120
    anywhere = made.scheduler == "local" or made.any_partition
    assert anywhere or (made.checked and made.docs and (made.hostnames or made.detect))
    assert anywhere or made.account_help or "account: optional" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_source_tag_is_explained(path):
    """Every tag that a comment gives as its source stands in the legend at the file's top, and none there is idle."""
    text = path.read_text(encoding="utf-8")
    legend = re.findall(r"^#   \[([\w-]+)\] ", text, re.MULTILINE)
    used = re.findall(r"\[([\w-]+)\]", " ".join(re.findall(r"(?:^|\s)#(?!   \[)(.*)", text)))
    behind_legend = re.findall(r"^#   \[[\w-]+\] (.*)", text, re.MULTILINE)
    used += re.findall(r"\[([\w-]+)\]", " ".join(behind_legend))
    assert set(legend) == set(used)
    assert len(legend) == len(set(legend))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_name_finds_its_partition(path):
    """A partition answers to its own name and to each name that people know it by."""
    made = search.load(str(path)).site
    for name, partition in made.partitions.items():
        for word in (name, *partition.aliases):
            assert made.find_partition(word) == (name, partition)


@pytest.mark.parametrize(
    ("hostname", "name"),
    [
        ("gadi-login-03", "gadi"),
        ("gadi-login-03.gadi.nci.org.au", "gadi"),
        ("gadi.nci.org.au", "gadi"),
        ("jean-zay", "jean-zay"),
        ("jean-zay1", "jean-zay"),
        ("jean-zay5.idris.fr", "jean-zay"),
        ("jean-zay-iam01", None),
        ("polaris-login-02", "polaris"),
        ("aurora-uan-0010", "aurora"),
        ("lumi-uan01", "lumi"),
        ("login02.leonardo.local", "leonardo"),
        ("alogin1", "marenostrum5"),
        ("login02.jupiter.fz-juelich.de", "jupiter"),
        ("int4.local.snellius.surf.nl", "snellius"),
        ("setonix-01", "setonix"),
        ("derecho.hpc.ucar.edu", "derecho"),
        ("login05", None),
        ("nid001234", None),
        ("uan01", None),
        ("laptop", None),
    ],
)
def test_login_node_is_recognised(monkeypatch, tmp_path, hostname, name):
    """On a login node nobody has to say which site it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HPCLAUNCH_PATH", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert search.match_host(hostname) == name


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("NERSC_HOST=perlmutter", "perlmutter"),
        ("CC_CLUSTER=fir", "fir"),
        ("CC_CLUSTER=narval", "narval"),
        ("CC_CLUSTER=cedar", None),
        ("SYSTEMNAME=juwelsbooster", "juwels-booster"),
        ("SYSTEMNAME=jupiter", "jupiter"),
        ("PAWSEY_CLUSTER=setonix", "setonix"),
        ("NCAR_HOST=derecho", "derecho"),
    ],
)
def test_login_node_is_recognised_by_a_variable(monkeypatch, tmp_path, variable, name):
    """If login nodes of several sites have the same names, the variable that a site sets tells which it is."""
    test_login_node_is_recognised(monkeypatch, tmp_path, "login05", None)
    monkeypatch.setenv(*variable.split("="))
    assert search.match_host() == name


# What each site's guide asks for two whole GPU nodes and an hour; docs/sites.md has the differences.
FORMS = {
    "polaris": "-A abc|-q debug|-l select=2:system=polaris|-l place=scatter|-l filesystems=home:eagle",
    "aurora": "-A abc|-q debug|-l select=2|-l place=scatter|-l filesystems=home:flare",
    "derecho": "-A abc|-q main|-l select=2:ncpus=64:ngpus=4:mem=480GB|-l job_priority=regular",
    "lumi": "--partition=standard-g|--gpus-per-node=8|--ntasks-per-node=8|--cpus-per-task=7|--mem=480G",
    "leonardo": "--partition=boost_usr_prod|--gres=gpu:4|--ntasks-per-node=4|--cpus-per-task=8",
    "marenostrum5": "--qos=acc_ehpc|--gres=gpu:4|--ntasks-per-node=4|--cpus-per-task=20",
    "jupiter": "--partition=booster|--gres=gpu:4|--cpus-per-task=72",
    "juwels-booster": "--partition=booster|--gres=gpu:4|--cpus-per-task=12",
    "snellius": "--partition=gpu_a100|--gpus-per-node=4|--cpus-per-task=18",
    "isambard-ai": "--partition=workq|--gpus-per-node=4|--cpus-per-task=72",
    "fir": "--gpus-per-node=h100:4|--cpus-per-task=12|--mem=1125G",
    "narval": "--gpus-per-node=a100:4|--cpus-per-task=12|--mem=498G",
    "perlmutter": "--constraint=gpu|--qos=regular|--gpus-per-node=4|--ntasks-per-node=4|--cpus-per-task=32",
    "setonix": "--account=abc-gpu|--partition=gpu|--gres=gpu:8",
}
ACCOUNTS = {"lumi": "project_465000001", "setonix": "abc-gpu"}


def directives(cli, name: str, *words: str) -> list[str]:
    result = cli("render", "--site", name, "-A", ACCOUNTS.get(name, "abc"), *words, "--", "python", "train.py")
    assert result.exit_code == 0, result.stderr
    return re.findall(r"^#(?:SBATCH|PBS) (.*)", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", FORMS)
def test_nodes_are_requested_as_the_guide_does(cli, name):
    """A script for two nodes asks for them in the form of the site's own guide."""
    found = directives(cli, name, "--nodes", "2", "--force", "program")
    assert [form for form in FORMS[name].split("|") if form not in found] == []


@pytest.mark.parametrize(
    ("name", "words", "directive"),
    [
        ("polaris", "--nodes 20 -t 3h", "-q prod"),
        ("polaris", "--nodes 3 -t 30h", "-q capacity"),
        ("aurora", "--nodes 300 -t 12h", "-q prod"),
        ("leonardo", "--nodes 70", "--qos=boost_qos_bprod"),
        ("leonardo", "--nodes 8 -t 96h", "--qos=boost_qos_lprod"),
        ("lumi", "--nodes 4 -t 60h", "--partition=small-g"),
    ],
)
def test_size_and_time_choose_queue_and_qos(cli, name, words, directive):
    """A job that names neither partition nor QoS gets those that take its size and walltime."""
    assert directive in directives(cli, name, *words.split(), "--force", "program")


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("polaris", "-p prod --nodes 9", "minimum of 10"),
        ("polaris", "-p prod --nodes 24 -t 4h", "limit of 03:00:00"),
        ("aurora", "-p debug --nodes 3", "2"),
        ("lumi", "-A abc", "account"),
        ("leonardo", "--nodes 9 -t 25h", "24:00:00"),
        ("jupiter", "-t 13h", "limit of 12:00:00"),
        ("marenostrum5", "--mem-gb 100", "mem"),
        ("setonix", "-A abc", "-gpu"),
        ("setonix", "--mem-gb 100", "mem"),
        ("perlmutter", "--qos debug --nodes 9", "8"),
        ("snellius", "--nodes 2 --gpus-per-node 2", "whole"),
    ],
)
def test_what_the_site_would_refuse_is_refused(cli, name, words, why):
    """A request that the site does not take is refused before it is submitted, with the limit."""
    account = () if "-A" in words else ("-A", ACCOUNTS.get(name, "abc"))
    result = cli("check", "--site", name, *words.split(), *account, "--force", "program", "--", "python", "train.py")
    assert result.exit_code == 1
    assert why in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("name", "directive", "says"),
    [
        ("polaris", "#PBS -q small", "take no jobs from users; use prod"),
        ("derecho", "#PBS -q casper", "a queue of Casper"),
        ("fir", "#SBATCH --gpus-per-node=4", "use --gpus-per-node=h100:4"),
        ("perlmutter", "#SBATCH --gres=gpu:4", "use --gpus-per-node"),
        (
            "perlmutter",
            "#SBATCH --constraint=gpu",
            "no QoS requested, and none of gpu is the default; use --qos=regular",
        ),
        ("marenostrum5", "#SBATCH --gres=gpu:4", "use --qos=acc_ehpc"),
    ],
)
def test_directives_that_a_site_refuses_are_named_in_scripts(cli, work, name, directive, says):
    """A script's option that the site does not take is named at its line, also one that a request could hold."""
    (work / "job.sh").write_text(f"#!/bin/bash\n{directive}\npython train.py\n")
    result = cli("check", "--script", "job.sh", "--site", name)
    assert re.search(rf"^job.sh:2: .*{re.escape(says)}", result.stdout + result.stderr, re.MULTILINE)


# queue: cores, GB and jobfs GB of a node; cores: hours
QUEUES = """
normal     48  192   400   672:48 1440:24 2976:10 20736:5
express    48  192   400   480:24 3168:5
normalbw   28  256   400   336:48 840:24 1736:10 10080:5
expressbw  28  256   400   280:24 1848:5
normalsl   32  192   400   288:48 608:24 1984:10 3200:5
normalsr  104  500   400   1040:48 2080:24 4160:10 10400:5
expresssr 104  500   400   1040:24 2080:5
hugemem    48 1470  1400   48:48 96:24 192:5
hugemembw  28 1020   390   28:48 140:12
megamem    48 2990  1400   48:48 96:24
megamembw  64 3000   800   32:48 64:12
gpuvolta   48  382   400   96:48 192:24 960:5
dgxa100   128 2000 28000   128:48 256:5
gpuhopper  48 1022  1700   48:48
copyq       -  190     -   1:10
""".strip().splitlines()


def test_gadi_has_the_queues_that_people_may_use():
    """Each queue that is open to everybody is there, none else, and the `-exec` queues are not offered."""
    assert set(GADI.partitions) == {row.split()[0] for row in QUEUES}
    assert not any(GADI.find_partition(f"{name}-exec") for name in GADI.partitions)


@pytest.mark.parametrize("row", QUEUES, ids=lambda row: row.split()[0])
def test_gadi_queue_limits(row):
    """A queue has NCI's node and walltime tiers."""
    name, cores, mem, jobfs, *limits = row.split()
    queue = GADI.partitions[name]
    assert queue.cores_per_node == (None if cores == "-" else int(cores))
    assert queue.mem_gb_per_node == int(mem)
    assert queue.jobfs_gb_per_node == (None if jobfs == "-" else int(jobfs))
    assert tiers(queue).split() == limits
    assert queue.max_cores == int(limits[-1].split(":")[0])
    assert GADI.internet is False and bool(queue.internet) == (name == "copyq")


@pytest.mark.parametrize("name", [row.split()[0] for row in QUEUES])
def test_gadi_sizes_are_whole_nodes(name):
    """Above one node every bound of a queue is a number of whole nodes, as Gadi demands of a job."""
    queue = GADI.partitions[name]
    for bound in [queue.max_cores, *(tier.max_cores for tier in queue.walltime)]:
        if bound and queue.cores_per_node and bound > queue.cores_per_node:
            assert bound % queue.cores_per_node == 0


@pytest.mark.parametrize(("name", "gpus", "cpus"), [("gpuvolta", 4, 12), ("dgxa100", 8, 16), ("gpuhopper", 4, 12)])
def test_gadi_gpu_queues(name, gpus, cpus):
    """A GPU comes with just its share of cores."""
    queue = GADI.partitions[name]
    assert (queue.gpus_per_node, queue.cpus_per_gpu, queue.cpus_per_gpu_exact) == (gpus, cpus, True)
    assert queue.gpu
    assert {n for n, q in GADI.partitions.items() if q.gpus_per_node} == {"gpuvolta", "dgxa100", "gpuhopper"}


@pytest.mark.parametrize(
    ("name", "least", "step"), [("hugemembw", 7, 7), ("megamembw", 32, 32), ("normal", None, None)]
)
def test_gadi_least_sizes(name, least, step):
    """The Broadwell nodes with much memory are given out in parts of a node."""
    assert (GADI.partitions[name].min_cores, GADI.partitions[name].core_step) == (least, step)


# NCI's "Queue Limits": SU for a core and hour, in the order of QUEUES
RATES = [2, 6, 1.25, 3.75, 1.5, 2, 6, 3, 1.25, 5, 1.25, 3, 4.5, 7.5, 2]
# NCI's "Job costs": queue, cpus, GB, SU for five hours
EXAMPLES = [
    ("normal", 8, 16, 80),
    ("normal", 8, 128, 320),
    ("normal", 8, 192, 480),
    ("express", 8, 16, 240),
    ("gpuvolta", 12, 90, 180),
    ("gpuvolta", 12, 380, 716.23),
]


def test_gadi_prices():
    """A core and hour of each queue costs NCI's rate, and NCI's worked examples cost what that page says."""
    assert {queue.charge.unit for queue in GADI.partitions.values()} == {"SU"}
    assert [GADI.partitions[row.split()[0]].charge.rate for row in QUEUES] == RATES
    for name, cpus, mem, su in EXAMPLES:
        gpus = cpus // 12 if name == "gpuvolta" else 0
        sizes = {"nodes": 1, "gpus": gpus, "cpus": cpus, "mem_gb": mem}
        cost = job_cost(GADI.partitions[name].charge, seconds=5 * 3600, **sizes)
        assert cost and cost.amount == su


@pytest.mark.parametrize("name", [row.split()[0] for row in QUEUES if row.split()[0] not in ("normal", "copyq")])
def test_gadi_charges_memory_by_the_node(name):
    """A whole node with the memory asked for by default costs no more than its cores."""
    queue = GADI.partitions[name]
    assert queue.charge and queue.charge.mem_gb and queue.cores_per_node
    usual = queue.default_mem_gb_per_node or queue.mem_gb_per_node
    assert usual and usual <= queue.charge.mem_gb * queue.cores_per_node + 1e-9


def test_gadi_asks_as_nci_does():
    """Two V100 nodes ask for NCI's own 760 GB of memory and 800 GB of disk, with NCI's modules in sight."""
    queue = GADI.partitions[GADI.default_partition]
    assert (GADI.default_partition, GADI.launcher, GADI.multi_node) == ("gpuvolta", "torchrun", "whole")
    assert GADI.ask_memory and GADI.ask_jobfs
    assert (queue.default_mem_gb_per_node, queue.jobfs_gb_per_node) == (380, 400)
    assert GADI.storage == ["gdata/dk92"]
    assert GADI.module_paths == ["/g/data/dk92/apps/Modules/modulefiles"]
    assert GADI.modules[0].startswith("NCI-ai-ml/")
    assert not GADI.datasets


def test_gadi_is_asked_seldom_and_takes_no_arrays():
    """Automatic questions keep NCI's ten minutes, jobs may submit jobs, and arrays, disputed by sources, are out."""
    assert (GADI.poll, GADI.resubmit, GADI.arrays) == ("00:10:00", True, False)


@pytest.mark.parametrize("partition", ["workq", "gpuq"])
def test_any_pbs_takes_any_queue(cli, partition):
    """On a PBS site that has no profile of its own, any queue may be named, and nothing is refused."""
    words = ("-q", partition, "--nodes", "200", "--gpus-per-node", "8", "--cpus-per-task", "12", "-t", "500h")
    result = cli("render", "--site", "pbs", *words, "--", "true")
    assert result.exit_code == 0, result.stderr
    assert f"#PBS -q {partition}\n#PBS -l select=200:ncpus=96:ngpus=8:mpiprocs=8\n" in result.stdout
    assert "warning" not in result.stderr


def test_unconfirmed_limits_only_warn():
    """What no good source confirms is listed as such, and nothing else is."""
    partitions = {**GADI.partitions, **JEAN_ZAY.partitions}
    assert {name: set(p.unconfirmed) for name, p in partitions.items() if p.unconfirmed} == {
        "gpuhopper": {"mem_gb_per_node", "jobfs_gb_per_node", "max_cores", "charge"},
        "copyq": {"charge"},
        "normalbw": {"charge"},
        "expressbw": {"charge"},
        "hugemem": {"mem_gb_per_node"},
        "archive": {"internet"},
        "prepost": {"cores_per_node", "mem_gb_per_node", "max_cores"},
        "visu": {"cores_per_node", "max_cores"},
        "compil_h100": {"cores_per_node"},
    }
    assert {q.name: q.unconfirmed for p in partitions.values() for q in p.qos if q.unconfirmed} == {
        "qos_gpu_h100-t4": ["max_gpus"],
        "qos_gpu-t3": ["max_gpus"],  # these three stand in a copy of IDRIS's table of 2023 and nowhere else
        "qos_cpu-t3": ["max_cores"],
        "qos_cpu-dev": ["max_cores"],
    }


# partition alias directive cores GPUs cpus-per-GPU GB account family
PARTITIONS = """
v100     gpu_p13 -                     40 4 10 160 @v100 qos_gpu
v100-16g gpu_p3  --constraint=v100-16g 40 4 10 160 @v100 qos_gpu
v100-32g gpu_p1  --constraint=v100-32g 40 4 10 160 @v100 qos_gpu
gpu_p2   -       --partition=gpu_p2    24 8  3 720 @v100 qos_gpu
gpu_p2s  -       --partition=gpu_p2s   24 8  3 360 @v100 qos_gpu
gpu_p2l  -       --partition=gpu_p2l   24 8  3 720 @v100 qos_gpu
a100     gpu_p5  --constraint=a100     64 8  8 468 @a100 qos_gpu_a100
h100     gpu_p6  --constraint=h100     96 4 24 468 @h100 qos_gpu_h100
cpu_p1   cpu     -                     40 0  - 160 @cpu  qos_cpu
""".strip().splitlines()
# QoS, hours, most GPUs (cpu: cores) of a job, in the order in which they are tried
QOS = {
    "qos_gpu": "t3:20:512 t4:100:16 dev:2:32",
    "qos_gpu_a100": "t3:20:None dev:2:32",
    "qos_gpu_h100": "t3:20:512 t4:100:16 dev:2:32",
    "qos_cpu": "t3:20:20480 t4:100:160 dev:2:5120",
}


@pytest.mark.parametrize("row", PARTITIONS, ids=lambda row: row.split()[0])
def test_jean_zay_nodes(row):
    """A partition has IDRIS's node, is asked for by IDRIS's option and charged to the account of its hardware."""
    name, alias, directive, cores, gpus, cpus, mem, suffix, _ = row.split()
    partition = JEAN_ZAY.partitions[name]
    assert partition.aliases == ([] if alias == "-" else [alias])
    assert partition.directives == ([] if directive == "-" else [directive])
    assert (partition.cores_per_node, partition.gpus_per_node) == (int(cores), int(gpus))
    assert partition.cpus_per_gpu == (None if cpus == "-" else int(cpus))
    assert not partition.cpus_per_gpu_exact
    assert (partition.mem_gb_per_node, partition.account_suffixes[:1]) == (int(mem), [suffix])
    assert partition.modules == ([f"arch/{name}"] if name in ("a100", "h100") else [])
    unit = ("GPU-hours", "gpu", 1) if int(gpus) else ("core-hours", "core", 1)
    assert partition.charge and (partition.charge.unit, partition.charge.per, partition.charge.rate) == unit


@pytest.mark.parametrize("row", PARTITIONS, ids=lambda row: row.split()[0])
def test_jean_zay_qos(row):
    """A job gets t3 unasked, t4 where it is longer and small enough, and dev only by name; A100 has no t4."""
    name, family = row.split()[0], row.split()[-1]
    found = JEAN_ZAY.partitions[name].qos
    most = "max_cores" if name == "cpu_p1" else "max_gpus"
    assert (
        " ".join(f"{q.name.removeprefix(family + '-')}:{int(q.max_walltime[:-6])}:{getattr(q, most)}" for q in found)
        == (QOS[family])
    )
    assert [q.name for q in found if q.default] == [f"{family}-t3"]
    assert [q.name for q in found if not q.automatic] == [f"{family}-dev"]


@pytest.mark.parametrize(
    ("name", "hours", "internet", "cores", "gpus"),
    [
        ("prepost", "20", True, 48, 1),
        ("archive", "20", False, None, 0),
        ("visu", "04", False, 40, 0),
        ("compil", "20", True, None, 0),
        ("compil_h100", "20", False, 96, 0),
    ],
)
def test_jean_zay_free_partitions(name, hours, internet, cores, gpus):
    """The free partitions cost nothing, take any account, and only those with internet say that they have it."""
    partition = JEAN_ZAY.partitions[name]
    assert (partition.cores_per_node, partition.max_cores, partition.gpus_per_node) == (cores, cores, gpus)
    plan = make_plan(search.load("jean-zay"), make_request({"partition": name, "account": "abc@cpu"}))
    assert (plan.cpus_per_node, plan.gpus_per_node) == (1, 0)  # shared by all: as little as a job may ask for
    assert partition.directives == [f"--partition={name}"]
    assert [tier.max_walltime for tier in partition.walltime] == [f"{hours}:00:00"]
    assert (partition.charge, partition.account_suffixes, bool(partition.internet)) == (None, [], internet)
    assert JEAN_ZAY.internet is False


def test_jean_zay_has_the_partitions_that_people_may_use():
    """Each partition is there once, and the historic gpu_p4 is not."""
    listed = {row.split()[0] for row in PARTITIONS}
    assert set(JEAN_ZAY.partitions) - listed == {"prepost", "archive", "visu", "compil", "compil_h100"}
    assert listed <= set(JEAN_ZAY.partitions)
    assert JEAN_ZAY.find_partition("gpu_p4") is None


def test_jean_zay_asks_as_idris_does():
    """A job purges modules, takes cores rather than hyperthreads, one task per GPU, and finds MNIST in $DSDIR."""
    assert (JEAN_ZAY.default_partition, JEAN_ZAY.launcher, JEAN_ZAY.multi_node) == ("v100", "tasks", "exclusive")
    assert JEAN_ZAY.module_purge and not JEAN_ZAY.ask_memory
    assert JEAN_ZAY.modules == ["pytorch-gpu/py3/2.8.0"]
    assert JEAN_ZAY.directives == ["--hint=nomultithread"]
    assert JEAN_ZAY.datasets == {"MNIST_DIR": "$DSDIR/MNIST"}


@pytest.mark.parametrize(
    ("name", "directives", "partition"),
    [
        ("derecho", "#PBS -q main\n#PBS -l select=18:ncpus=128:mpiprocs=128", "main-cpu"),
        ("derecho", "#PBS -q main\n#PBS -l select=2:ncpus=64:ngpus=4", "main"),
        ("narval", "#SBATCH --account=def-x\n#SBATCH --mem=3G\n#SBATCH --cpus-per-task=2", "cpu"),
        ("narval", "#SBATCH --account=def-x\n#SBATCH --gpus-per-node=a100:1", ""),
        ("perlmutter", "#SBATCH -C gpu\n#SBATCH -q shared\n#SBATCH --gpus-per-node=1", "shared"),
        ("perlmutter", "#SBATCH -C gpu\n#SBATCH -q regular\n#SBATCH --gpus-per-node=4", "gpu"),
    ],
)
def test_what_is_requested_in_the_same_words_is_told_apart(work, name, directives, partition):
    """Where CPU and GPU jobs, or those of another QoS, name the same queue or none, the sizes say which it is."""
    (work / "job.sh").write_text(f"#!/bin/bash\n{directives}\ntrue\n")
    assert own.read(work / "job.sh", search.load(name))[1].partition_name == partition


@pytest.mark.parametrize(
    ("tasks", "ranks"), [("--ntasks=1 --ntasks-per-node=4", 1), ("-n 8 -N 2 --ntasks-per-node=4", 4)]
)
def test_beside_all_tasks_those_of_a_node_are_the_most(work, tasks, ranks):
    """With --ntasks, --ntasks-per-node is a limit."""
    (work / "job.sh").write_text(f"#!/bin/bash\n#SBATCH {tasks}\nsrun true\n")
    assert own.read(work / "job.sh", search.load("jean-zay"))[1].tasks_per_node == ranks


def test_a_gpu_that_no_partition_has(cli, work):
    """Where GPUs are requested by their model, another cluster's is refused; a part of a known one is not."""
    for kind, said in ("v100", True), ("a100_3g.20gb", False):
        (work / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --gpus-per-node={kind}:1 --gres=nvme:1\ntrue\n")
        answer = cli("check", "--script", "job.sh", "--site", "narval").stdout
        assert (f"error: directives: --gpus-per-node={kind}:1: narval has a100, no {kind}" in answer) == said
