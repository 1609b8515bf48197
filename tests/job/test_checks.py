"""Every check: a request that it refuses or warns of, and a twin one step inside the limit."""

from __future__ import annotations

from typing import Any

import pytest

import hpclaunch
from hpclaunch.errors import RequestError
from hpclaunch.job.checks import CHECKS, Diagnostic
from hpclaunch.job.consider import consider
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

G, J = "gadi", "jean-zay"
COMMAND = ["python", "train.py"]
ACCOUNTS = {G: "ab12", J: "abc@v100", "tiles": "ab12"}
REFUSES, WARNS = True, False
# An array of PBS needs -r y, and Gadi may not take any.
DEV = {"qos": "qos_gpu-dev"}
MISSING = {"machine": {"missing_folders": {"logs": True}}}


def found(name: str, **asked: Any) -> list[Diagnostic]:
    """Return the findings of a request, of an account that fits where none is given."""
    account = ACCOUNTS.get(name.rsplit("/", maxsplit=1)[-1].removesuffix(".yaml"), ACCOUNTS[G])
    profile = search.load(name)
    asked = {"command": COMMAND, "account": account, "partition": profile.site.default_partition} | asked
    return consider(profile, make_request({"site": name, **asked}))[1]


def cmd(*words: str) -> dict[str, Any]:
    return {"command": [*COMMAND, *words]}


def directive(*lines: str) -> dict[str, Any]:
    return {"directive": list(lines)}


ON_A100 = {"account": "abc@a100", "partition": "a100"}
ON_H100 = {"account": "abc@h100", "partition": "h100"}
# check, site, refused or warned of, what is said, and the twin that is fine
CASES = [
    ("partition", G, REFUSES, {"partition": "gpuvolta-exec"}, "use --partition gpuvolta", {"partition": "gpuvolta"}),
    ("partition", J, REFUSES, {"partition": "gpu_p4"}, "has no partition 'gpu_p4'", {"partition": "gpu_p13"}),
    ("network", "tiles", REFUSES, {"network": "tpc"}, "mean tcp?); use slingshot or tcp or none", {"network": "tcp"}),
    ("hint", J, WARNS, {"partition": "v100-16g"}, "shortens the wait", {"partition": "v100-32g"}),
    ("workload", G, REFUSES, {"command": [], "workload": "mnst"}, "mean mnist?", {"command": [], "workload": "mnist"}),
    (
        "container",
        J,
        REFUSES,
        {"container": "/home/me/a.sif", "machine": {"image_folders": ["/images"]}},
        "/home/me/a.sif lies in none of $SINGULARITY_ALLOWED_DIR, the only folders for images",
        {"container": "/images/a.sif", "machine": {"image_folders": ["/images"]}},
    ),
    (
        "container",
        J,
        WARNS,
        {"container": "/home/me/a.sif", "machine": {"image_folders": ["$SINGULARITY_ALLOWED_DIR"]}},
        "copy it there",
        {"container": "$SINGULARITY_ALLOWED_DIR/a.sif", "machine": {"image_folders": ["$SINGULARITY_ALLOWED_DIR"]}},
    ),
    (
        "container",
        G,
        REFUSES,
        {"container": "a.sif", "machine": {"image_problem": "no", "files_are_final": True}},
        "no",
        {"container": "a.sif"},
    ),
    ("container", G, WARNS, {"container": "a.sif", "venv": "x"}, "not the image's", {"container": "a.sif"}),
    (
        "staging",
        G,
        REFUSES,
        {"stage_in": ["x"], "machine": {"files_missing": ["x"], "files_are_final": True}},
        "there is no x to stage",
        {"stage_in": ["x"]},
    ),
    ("staging", G, REFUSES, {"stage_in": ["x:/tmp/x"]}, "use a relative one", {"stage_in": ["/data/x:x"]}),
    ("staging", G, REFUSES, {"stage_out": ["../x:/tmp/x"]}, "use a relative one", {"stage_out": ["x:/tmp/x"]}),
    (
        "staging",
        G,
        REFUSES,
        {"stage_in": ["x"], "jobfs_gb": 100, "machine": {"staged_gb": 100.5}},
        "has 100 GB for the job; use --jobfs-gb 101",
        {"stage_in": ["x"], "jobfs_gb": 101, "machine": {"staged_gb": 100.5}},
    ),
    ("placeholders", G, REFUSES, {"account": "your_project"}, "left from an example", {"account": "yp12"}),
    ("placeholders", J, REFUSES, {"account": "changeme@v100"}, "changeme", {"account": "abc@v100"}),
    ("placeholders", J, REFUSES, {"account": "project_id@v100"}, "project_id", {"account": "young@v100"}),
    ("placeholders", J, REFUSES, {"account": "xxx@v100"}, "xxx", {"account": "xx@v100"}),
    ("placeholders", J, REFUSES, cmd("--data", "/path/to/data"), "/path/to", cmd("--data", "/data/path/to/x")),
    ("placeholders", G, REFUSES, cmd("--out=<dir>"), "<dir>", cmd("--filter=a<b>c")),
    (
        "gpus",
        G,
        REFUSES,
        {"gpus_per_node": 5},
        "a gpuvolta node has 4; use --gpus-per-node 4",
        {"gpus_per_node": 4},
    ),
    (
        "gpus",
        G,
        REFUSES,
        {"gpus_per_node": 0},
        "for jobs with 1 to 4 per node; use --gpus-per-node 4 or --gpus-per-node 1",
        {"gpus_per_node": 1},
    ),
    ("gpus", G, REFUSES, {"partition": "copyq", "gpus_per_node": 1}, "a copyq node has none", {"partition": "copyq"}),
    (
        "gpus",
        J,
        REFUSES,
        {"gpus_per_node": 8},
        "a v100 node has 4",
        {"partition": "gpu_p2", "gpus_per_node": 8},
    ),
    ("tasks", G, REFUSES, {"gpus_per_node": 2, "tasks_per_node": 4}, "--tasks-per-node 2", {"tasks_per_node": 4}),
    ("tasks", J, WARNS, {"gpus_per_node": 4, "tasks_per_node": 2}, "leave 2 of 4 GPUs idle", {"tasks_per_node": 2}),
    (
        "ranks",
        J,
        REFUSES,
        {"machine": {"cores": 2}, "nodes": 5},
        "20 ranks exceed this machine's limit of 16",
        {"machine": {"cores": 2}, "nodes": 4},
    ),
    ("whole-nodes", G, REFUSES, {"nodes": 2, "gpus_per_node": 3}, "use --gpus-per-node 4", {"nodes": 2}),
    ("whole-nodes", J, WARNS, {"nodes": 2, "gpus_per_node": 3}, "8 GPUs, 8 GPU-hours", {"gpus_per_node": 3}),
    ("cpus", G, REFUSES, {"gpus_per_node": 2, "cpus_per_task": 13}, "2 x 12 = 24", {"cpus_per_task": 12}),
    ("cpus", J, REFUSES, {"cpus_per_task": 11}, "a v100 node has 40", {"cpus_per_task": 10}),
    ("cpus", J, WARNS, {"gpus_per_node": 1, "cpus_per_task": 11}, "charged", {"gpus_per_node": 1, "cpus_per_task": 10}),
    ("size", G, REFUSES, {"nodes": 21}, "1008 cores exceeds gpuvolta's limit of 960", {"nodes": 20}),
    (
        "size",
        G,
        REFUSES,
        {"partition": "copyq", "tasks_per_node": 2},
        "limit of 1 core; use --tasks-per-node 1",
        {"partition": "copyq"},
    ),
    (
        "size",
        G,
        REFUSES,
        {"partition": "hugemembw", "cpus_per_task": 6},
        "minimum of 7 cores; use --cpus-per-task 7",
        {"partition": "hugemembw", "cpus_per_task": 7},
    ),
    (
        "size",
        G,
        REFUSES,
        {"partition": "hugemembw", "cpus_per_task": 15},
        "multiples of 7; use --cpus-per-task 21 [",
        {"partition": "hugemembw", "cpus_per_task": 21},
    ),
    ("size", G, WARNS, {"partition": "gpuhopper", "nodes": 2}, "not confirmed]", {"partition": "gpuhopper"}),
    ("hint", G, WARNS, {"partition": "gpuhopper"}, "price are not confirmed", {"partition": "dgxa100"}),
    (
        "size",
        J,
        WARNS,
        {"partition": "prepost", "cpus_per_task": 49},
        "limit of 48 cores",
        {"partition": "prepost", "cpus_per_task": 48},
    ),
    (
        "gpus",
        J,
        REFUSES,
        {"partition": "prepost", "gpus_per_node": 2},
        "a prepost node has 1",
        {"partition": "prepost", "gpus_per_node": 1},
    ),
    ("memory", G, REFUSES, {"mem_gb": 383}, "exceeds the 382 GB", {"mem_gb": 382}),
    ("memory", J, WARNS, {"mem_gb": 160}, "memory comes with the cores", {"cpus_per_task": 10}),
    (
        "restarts",
        G,
        REFUSES,
        {"max_restarts": 1, "launcher": "tasks"},
        "only torchrun can",
        {"max_restarts": 1, "launcher": "torchrun"},
    ),
    ("node-range", G, REFUSES, {"nodes": "2:4"}, "pbs has no range of nodes", {"nodes": 4}),
    ("node-range", J, REFUSES, {"nodes": "4:2"}, "use --nodes 2:4", {"nodes": "2:4"}),
    ("memory", J, WARNS, directive("--mem-per-cpu=4G"), "--mem-per-cpu=4G: on", directive("--mail-type=END")),
    (
        "memory-charge",
        G,
        WARNS,
        {"gpus_per_node": 1, "mem_gb": 380},
        "47.7487 cores, 3.98 times",
        {"gpus_per_node": 1, "mem_gb": 95},
    ),
    ("jobfs", G, REFUSES, {"jobfs_gb": 401}, "exceeds the 400 GB", {"jobfs_gb": 400}),
    ("jobfs", J, WARNS, {"jobfs_gb": 1}, "request none", {}),
    (
        "walltime",
        G,
        REFUSES,
        {"walltime": "48:00:01"},
        "limit of 48:00:00 for up to 96 cores",
        {"walltime": "48:00:00"},
    ),
    ("walltime", G, REFUSES, {"walltime": "48:00"}, "is no walltime", {"walltime": "48h"}),
    (
        "walltime",
        G,
        REFUSES,
        {"nodes": 4, "walltime": "30h"},
        "30:00:00 exceeds gpuvolta's limit of 24:00:00 for 144-192 cores",
        {"nodes": 2, "walltime": "30h"},
    ),
    (
        "walltime",
        J,
        REFUSES,
        {"partition": "visu", "walltime": "5h"},
        "04:00:00",
        {"partition": "visu", "walltime": "4h"},
    ),
    ("qos", J, REFUSES, ON_A100 | {"walltime": "21h"}, "limit of 20:00:00", ON_A100 | {"walltime": "20h"}),
    ("qos", J, REFUSES, ON_A100 | DEV, "it is one of v100", ON_A100 | {"qos": "qos_gpu_a100-dev"}),
    ("qos", J, REFUSES, DEV | {"nodes": 9}, "36 GPUs exceed qos_gpu-dev's limit of 32", DEV | {"nodes": 8}),
    ("qos", J, WARNS, {"nodes": 129}, "516 GPUs exceed", {"nodes": 128}),
    ("qos", J, REFUSES, {"qos": "qos_gpu-t4", "nodes": 5}, "limit of 16", {"qos": "qos_gpu-t4", "nodes": 4}),
    (
        "qos",
        J,
        WARNS,
        ON_H100 | {"walltime": "21h", "nodes": 5},
        "limit of 16",
        ON_H100 | {"walltime": "21h", "nodes": 4},
    ),
    (
        "qos",
        J,
        REFUSES,
        ON_H100 | {"walltime": "21h", "nodes": 17},
        "64 at most by any source",
        ON_H100 | {"nodes": 17},
    ),
    ("account", J, REFUSES, {"account": "abc"}, "use -A abc@v100", {"account": "abc@gpu"}),
    ("account", J, REFUSES, {"account": "abc@h100"}, "or --partition h100", ON_H100),
    ("account", G, WARNS, {"account": None}, "no account to charge; use -A ACCOUNT: your NCI project", {}),
    ("hang", G, REFUSES, {"hang_after": "2h"}, "use --hang-after 00:30:00", {"hang_after": "59m"}),
    ("mail", G, REFUSES, {"mail_on": "end"}, "use --mail ADDRESS", {"mail_on": "end", "mail": "me@uni.edu"}),
    ("placeholders", J, REFUSES, {"env": {"M": "changeme"}}, "changeme", {"env": {"A": "TODO"}}),
    ("placeholders", G, WARNS, {"mail": "you@example.com"}, "fill it in", {"mail": "me@uni.edu"}),
    ("job-name", J, REFUSES, {"job_name": "interactive"}, "Lightning ignores Slurm", {"job_name": "interactive2"}),
    ("env", G, WARNS, {"env": {"NCPUS": "1"}}, "the scheduler sets it itself", {"env": {"N_CPUS": "1"}}),
    ("env", J, REFUSES, {"env": {"MASTER_PORT": "29500"}}, "the job sets it itself", {"env": {"NCPUS": "1"}}),
    ("modules", J, REFUSES, ON_A100 | {"module": ["arch/h100"]}, "is for h100", ON_A100 | {"module": ["arch/a100"]}),
    ("storage", G, REFUSES, {"storage": ["gdta/wb00"]}, "gdata/PROJECT", {"storage": ["gdata/wb00"]}),
    (
        "storage",
        G,
        WARNS,
        {"setup": ["cd /g/data/$PROJECT"]},
        "add --storage gdata/...",
        {"setup": ["cd /g/data/ab12"]},
    ),
    ("storage", J, WARNS, {"storage": ["work"]}, "see every file system unnamed", {}),
    ("home", G, WARNS, {"venv": "~/envs/x"}, "holds 10 GB", {"venv": "/scratch/ab12/envs/x"}),
    ("home", J, WARNS, {"env": {"HF_HOME": "$HOME/hf"}}, "holds 3 GB", {"env": {"HF_HOME": "$WORK/hf"}}),
    ("expiring", J, WARNS, cmd("--save-dir=$SCRATCH/x"), "30 days", cmd("--save-dir=$WORK/x")),
    ("reach", J, WARNS, cmd("$STORE/x"), "prepost, archive only", {"partition": "prepost"} | cmd("$STORE/x")),
    (
        "download",
        G,
        WARNS,
        {"setup": ["pip install x"]},
        "no internet",
        {"partition": "copyq", "setup": ["pip install x"]},
    ),
    ("download", G, WARNS, cmd("https://x.org/d"), "use copyq", cmd("http://localhost:80/")),
    (
        "download",
        G,
        WARNS,
        {"setup": ["x=1 curl -s https://x.org/d"]},
        "curl: the nodes",
        {"setup": ["curl -s http://localhost:80/ | grep wget", "curl 'http://[::1]/'"]},
    ),
    (
        "download",
        G,
        WARNS,
        {"command": ["bash", "-c", "cd x && wget $URL"]},
        "wget: the nodes",
        {"command": ["bash", "-c", "echo wget; pip install --no-index ./x.whl"]},
    ),
    ("download", G, WARNS, {"setup": ["python3 -m pip install x"]}, "pip install: the nodes", {"setup": ["pip list"]}),
    ("download", J, WARNS, {"env": {"WANDB_MODE": "online"}}, "prepost", {"env": {"WANDB_MODE": "offline"}}),
    ("commands", J, REFUSES, {"setup": ["idrquota -m"]}, "use idr_quota_user", {"setup": ["idr_quota_user"]}),
    (
        "launcher",
        G,
        REFUSES,
        {"command": ["torchrun", "t.py"]},
        "would start 4 times",
        {"command": ["torchrunner", "t.py"]},
    ),
    (
        "launcher",
        J,
        REFUSES,
        {"command": ["srun", "python", "t.py"]},
        "srun is a launcher",
        {"command": ["srun", "t"], "gpus_per_node": 1},
    ),
    (
        "program",
        G,
        REFUSES,
        {"machine": {"program_problem": "there is no file trian.py", "program_is_final": True}},
        "no file trian.py",
        {"machine": {}},
    ),
    ("trainer", G, REFUSES, cmd("--devices", "8"), "the job has 4; use --devices 4", cmd("--devices", "4")),
    (
        "trainer",
        J,
        REFUSES,
        {"nodes": 2} | cmd("--trainer.num_nodes=1"),
        "job has 2",
        {"nodes": 2} | cmd("--num_nodes=2"),
    ),
    (
        "literal",
        G,
        WARNS,
        cmd("--rank=$SLURM_PROCID"),
        "not expanded",
        {"command": ["bash", "-c", "echo $SLURM_PROCID"]},
    ),
    ("dtype", J, WARNS, cmd("--precision=bf16-mixed"), "use 16-mixed", ON_A100 | cmd("--precision=bf16-mixed")),
    (
        "backend",
        "tiles",
        WARNS,
        cmd("--backend=nccl"),
        "does not run on Intel Max 1550, one tile; use xccl",
        cmd("--backend=xccl", "--env=NCCL_DEBUG=INFO"),
    ),
    ("dtype", G, WARNS, cmd("--attn", "flash_attention_2"), "use sdpa", {"partition": "dgxa100"} | cmd("flash_attn")),
    (
        "attempts",
        J,
        REFUSES,
        {"max_attempts": 2, "walltime": "2m"},
        "is not less than the walltime",
        {"max_attempts": 2, "walltime": "3m"},
    ),
    (
        "attempts",
        G,
        REFUSES,
        {"max_attempts": 2} | directive("-J 0-3"),
        "-J with",
        {"max_attempts": 2} | directive("-r y"),
    ),
    ("arrays", G, WARNS, directive("-J 0-3", "-ry"), "may take no arrays", directive("-ry")),
    ("arrays", G, WARNS, directive("-J 0-3", "-r y"), "may take no arrays", directive("-r y")),
    ("arrays", G, REFUSES, directive("-J 0-3"), "rerunnable", directive("-m abe")),
    ("arrays", J, REFUSES, {"jobs": 2} | directive("--array=0-1"), "leave this directive out", {"jobs": 2}),
    ("arrays", J, REFUSES, DEV | directive("--array=0-10%2"), "11 jobs", DEV | directive("--array=0-9%2")),
    ("signal", G, WARNS, directive("--signal=USR1@60"), "torchrun", directive("-m abe")),
    ("signal", J, WARNS, directive("--signal=B:USR1@60"), "no rank hears it", directive("--signal=USR1@60")),
    ("log-folder", J, REFUSES, directive("--output=logs/%j/out"), "before the job", directive("--output=%x_%j.out")),
    ("signal", J, WARNS, directive("--signal=B:BUS@60"), "no rank hears it", directive("--signal=BUS@60")),
    ("signal", J, WARNS, directive("--signal RB:USR1"), "no rank hears it", directive("--signal R:BUS")),
    ("log-folder", J, REFUSES, directive("-o%j/a"), "before the job", directive("-oa")),
    ("log-folder", G, REFUSES, directive("-ologs/out") | MISSING, "mkdir -p logs", directive("-oout")),
    ("repeated", J, REFUSES, directive("-n3"), "use --nodes or --tasks-per-node", directive("-n4")),
    ("repeated", J, REFUSES, directive("-t5:00:00"), "use --walltime", directive("-t60")),
    ("log-folder", G, REFUSES, directive("-o logs/out") | MISSING, "mkdir -p logs", directive("-o logs/out")),
    (
        "log-folder",
        G,
        WARNS,
        directive("-o logs/") | {"machine": {"missing_folders": {"logs": False}}},
        "mkdir -p logs",
        directive("-o /dev/null"),
    ),
    ("directives", G, WARNS, directive("-V"), "use -v NAME=VALUE", directive("-v NAME=1")),
    ("directives", G, REFUSES, directive("-v A=1,2"), "the comma ends A's value", directive("-v A=1,B=2")),
    ("directives", G, REFUSES, directive("-l foo=1,"), "a comma too many", directive("-l foo=1")),
    ("directives", J, REFUSES, directive("--comment=$USER"), "is not expanded", directive("--comment=USER")),
    ("refused-directives", G, REFUSES, directive("-l foo=1,select=2"), "takes totals", directive("-l selected=2")),
    ("refused-directives", J, REFUSES, directive("--gres=gpu:0"), "forces a GPU", directive("--gres=tmp:1")),
    ("repeated", G, REFUSES, directive("-l storage=gdata/wb00"), "use --storage", directive("-l software=matlab")),
    ("repeated", G, REFUSES, directive("-l foo=1,walltime=02:00:00"), "use --walltime", directive("-l walltime=60:00")),
    ("repeated", G, REFUSES, directive("-q normal"), "use --partition", directive("-q gpuvolta")),
    ("max-cost", G, REFUSES, {"max_cost": 143.99}, "use --walltime 00:59:00 or --max-cost 144", {"max_cost": 144}),
    (
        "max-cost",
        J,
        REFUSES,
        {"nodes": 2, "max_cost": 7},
        "8 GPU-hours = 1 h x max(8 GPUs, 80 cpus / 10)",
        {"max_cost": 7},
    ),
    ("max-cost", G, WARNS, {"partition": "normalbw", "max_cost": 35}, "not confirmed", {"max_cost": 150}),
    ("max-cost", G, REFUSES, {"partition": "normalbw", "max_cost": 34.99}, "not confirmed", {"max_cost": 150}),
    ("repeated", J, REFUSES, directive("--time=05:00:00"), "use --walltime", directive("--nice=5")),
    ("repeated", J, REFUSES, directive("--nodes=2"), "use --nodes", directive("--nodes=1")),
    ("repeated", J, REFUSES, directive("--tasks-per-node=3"), "use --tasks-per-node", directive("--ntasks-per-node=4")),
    ("repeated", J, REFUSES, directive("--mail-user=a --nodes 2"), "use --nodes", directive("--mail-user=a")),
    ("repeated", J, REFUSES, directive("--gres=gpu:1"), "use --gpus-per-node", directive("--gres=gpu:v100:4,tmp:1")),
    ("repeated", J, REFUSES, directive("--gres=tmp:1"), "use --directive=--gres=gpu:4,tmp:1", directive("--tmp=1")),
    ("repeated", J, REFUSES, directive("--gpus=4"), "use --gpus-per-node", directive("--gpu-bind=none")),
    ("repeated", J, REFUSES, directive("-C a100"), "use --partition", directive("-C intel")),
    ("repeated", J, REFUSES, directive("-A x@v100"), "use --account", directive("-A abc@v100")),
    ("directives", J, WARNS, directive("--frobnicate=1"), "does not know this option", directive("--array=1,")),
    ("directives", J, WARNS, directive("--exlcude=n1"), "did you mean --exclude?", directive("--exclude=n1")),
    ("directives", G, REFUSES, directive("-Z 1"), "option -Z not recognized", directive("-m abe")),
]


@pytest.mark.parametrize(("check", "name", "refuses", "asked", "said", "twin"), CASES)
def test_a_check_fires_and_its_twin_does_not(check, name, refuses, asked, said, twin):
    """What a site refuses or mishandles is told with the way out; one step inside the limit nothing is said."""
    messages = [finding for finding in found(name, **asked) if finding.check == check]
    assert [finding for finding in messages if said in str(finding) and finding.refuses == refuses], messages
    assert not [finding for finding in found(name, **twin) if finding.check == check]


@pytest.mark.parametrize(
    "asked",
    [
        cmd("--timeout", "~/x"),
        cmd("--login_file=~/tok"),
        cmd("--catalog=~/c.json"),
        cmd("--metadata=~/m.json"),
        {"env": {"LAYOUT": "~/x.json", "ROUTE": "~/r", "PLOGIN": "~/p", "MYHOME": "~/h"}},
    ],
)
def test_words_inside_of_words_are_no_folders_of_results(asked):
    """An option whose name only contains out, log or data is not taken for one of logs, results or data."""
    assert not [finding for finding in found("gadi", **asked) if finding.check == "home"]


@pytest.mark.parametrize(
    "name",
    [
        *("--out", "--output-dir", "--outdir", "--outputDir", "--trainer.default_root_dir", "--log_file", "--logdir"),
        *("--save", "--ckpt_path", "--checkpoint-dir", "--data", "--data.root", "--dataset-path", "--dataroot"),
        *("HF_HOME", "XDG_CACHE_HOME", "PIP_CACHE_DIR", "HF_DATASETS_CACHE", "DATADIR", "MY_VENV"),
    ],
)
def test_folders_of_results_are_known_by_their_names(name):
    """Logs, results, checkpoints, caches and data in a small home folder are warned of, in any common spelling."""
    asked = cmd(f"{name}=~/x") if name.startswith("--") else {"env": {name: "~/x"}}
    assert [finding.check for finding in found("gadi", **asked)] == ["home"]


def test_this_machine_sends_no_mail():
    """Mail is refused where no scheduler sends it."""
    (one,) = [one for one in found("local", mail="me@uni.edu") if one.refuses]
    assert "--mail me@uni.edu: the scheduler local sends no mail; leave it out" in str(one)


def test_every_check_has_a_case():
    """No check is without a request that it refuses or warns of."""
    assert {case[0] for case in CASES} == set(CHECKS)


@pytest.mark.parametrize(("check", "name", "refuses", "asked", "said", "twin"), CASES)
def test_a_check_names_its_source(check, name, refuses, asked, said, twin):
    """Every message ends in the profile's file and line, or in where the rule is written down."""
    for finding in found(name, **asked):
        if finding.key:
            assert finding.source.startswith(f"{name}.yaml:"), finding
        assert finding.source, finding
        assert str(finding) == f"{finding.check}: {finding.message} [{finding.source}]"


@pytest.mark.parametrize(("check", "name", "refuses", "asked", "said", "twin"), CASES)
def test_a_profile_of_ones_own_is_checked_alike(cli, check, name, refuses, asked, said, twin):
    """`site new mine --from gadi` keeps every check, each with the line of the file that it comes from."""
    assert cli("site", "new", "mine", "--from", name).exit_code == 0
    mine = {"account": ACCOUNTS[name]} | asked
    theirs = [(finding.check, finding.refuses, finding.source) for finding in found(name, **mine)]
    assert [(finding.check, finding.refuses, finding.source) for finding in found("mine", **mine)] == theirs


def test_a_persons_own_numbers_are_checked_with_their_own_line(work):
    """A limit that a person writes into a profile counts, and the message names that very line."""
    (work / "mine.yaml").write_text(
        "extends: gadi\ntitle: Mine\nhome_gb: null\npartitions:\n  gpuvolta:\n    max_cores: 48\n"
        "    unconfirmed: [mem_gb_per_node]\n  small:\n    cores_per_node: 8\n"
        "    walltime: [{max_walltime: '00:30:00'}]\n"
    )
    (size,) = [finding for finding in found("./mine.yaml", nodes=2) if finding.check == "size"]
    assert (size.source, size.refuses) == ("./mine.yaml:6", True)
    (memory,) = [finding for finding in found("./mine.yaml", mem_gb=383) if finding.check == "memory"]
    assert memory.refuses is False
    (time,) = found("./mine.yaml", partition="small", walltime="31m")
    assert (time.check, time.source) == ("walltime", "./mine.yaml:10")
    assert found("./mine.yaml", partition="small", walltime="30m", venv="~/x") == []


def test_functions_are_checked_as_arrays():
    """`map_array` of more functions than a QoS takes is refused before anything is submitted."""
    executor = hpclaunch.executor("jean-zay", account="abc@v100", qos="qos_gpu-dev")
    with pytest.raises(RequestError, match=r"arrays: .*11 jobs exceed qos_gpu-dev's limit of 10 a user"):
        executor.map_array(len, [[]] * 11)


@pytest.mark.parametrize("folder", ["home/.config/hpclaunch/site_profiles", "elsewhere/site_profiles"])
def test_a_file_is_named_as_explain_names_it(cli, tmp_path, monkeypatch, folder):
    """A refusal and `render --explain` name a person's profile alike, from the home folder where that is shorter."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "mine.yaml").write_text("extends: gadi\ntitle: Mine\nhome_gb: 10\nenv: {A: b}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    monkeypatch.setenv("HPCLAUNCH_PATH", str(tmp_path / "elsewhere"))
    name = folder.replace("home", "~", 1) if folder.startswith("home") else str(tmp_path / folder)
    words = ("--site", "mine", "-A", "ab12", "--venv", "~/x", "--", "true")
    assert f"[{name}/mine.yaml:3]" in cli("check", *words).stdout
    explained = "".join(cli("render", "--explain", *words).stdout.split())  # long names are broken at the margin
    assert f"{name}/mine.yaml:4" in explained
