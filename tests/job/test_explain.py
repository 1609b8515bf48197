"""Where each line of a script comes from."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from test_golden import GOLDEN, SCRIPTS

from hpclaunch import paths
from hpclaunch.errors import RequestError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

DIRECTIVE = re.compile("#(PBS|SBATCH) ")
# What a template says whatever is asked for.
FIXED = ("#PBS -l wd", "#PBS -l place=scatter", "#SBATCH --output=%x_%j.out", "#SBATCH --output=%x_%A_%a.out")
NUMBERS = (
    *(
        "nodes",
        "tasks_per_node",
        "gpus_per_node",
        "cpus_per_node",
        "cpus_per_task",
        "mem_gb_per_node",
        "jobfs_gb_per_node",
    ),
    *("world_size", "cpus", "gpus", "mem_gb", "jobfs_gb", "starts_per_node", "cpus_per_start", "starts"),
    *("seconds", "warn_seconds", "warn_after", "max_attempts"),
)
# Requests that reach each rule by which a plan's numbers are made.
SIZES = [
    {
        "nodes": nodes,
        "gpus_per_node": gpus,
        "tasks_per_node": tasks,
        "cpus_per_task": cpus,
        "mem_gb": mem,
        "walltime": time,
    }
    for nodes, gpus, tasks, cpus, mem, time in product(
        (None, 2), (None, 1, 2), (None, 1, 2), (None, 1, 4), (None, 3), (None, "90m")
    )
]


@pytest.fixture
def lines(cli):
    """Call `render --explain --json` and return its lines."""

    def call(*words: str) -> list[dict]:
        result = cli("render", "--explain", "--json", "--quiet", *words)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return call


def origins(lines: list[dict], start: str) -> list[tuple[str, str | None, str | None]]:
    """Return kind, place and key of what made the one line that starts so; the templates' lines left out."""
    (line,) = [line for line in lines if line["text"].lstrip().startswith(start)]
    found = [(one["kind"], one["where"], one["key"]) for one in line["origins"]]
    return [one for one in found if one[0] != "template"]


def line_of(path: Path, text: str) -> int:
    """Return the number of the one line that holds `text`."""
    (number,) = [number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return number


def equations(formula: str) -> tuple[float, float] | None:
    """Return both sides of `2 nodes x 48 cpus a node = 96`, None where a formula is words."""
    words, _, value = formula.rpartition(" = ")
    tokens = re.findall(r"\d+(?:\.\d+)?|(?<= )[x/+-](?= )", words)
    sum_ = " ".join(tokens).replace("x", "*")
    if not re.fullmatch(r"[\d.]+( [*/+-] [\d.]+)*", sum_) or not re.fullmatch(r"[\d.]+", value):
        return None
    return eval(sum_), float(value)  # noqa: S307 - digits and signs


def check_places(lines: list[dict]) -> None:
    """FILE:LINE of a template is the very line whose words stand in the script."""
    texts: dict[str, str] = {}  # of one line of a template, which may print several
    for line in lines:
        places = [one["where"] for one in line["origins"] if one["kind"] == "template"]
        for place in places[:1]:
            texts[place] = texts.get(place, "") + line["text"]
    for place, text in texts.items():
        file, number = place.rsplit(":", 1)
        printed = (paths.shipped("templates") / file).read_text().split("\n")[int(number) - 1]
        own = re.sub(r"^[^{]*[}%]}", "", printed)  # without the end of an expression that began above
        assert re.split(r"{[{%]", own.strip())[0] in text, place


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_stays_and_each_line_has_its_origin(cli, work, name):
    """--explain changes no byte; each line has its origin, the very line of a template, each directive a reason."""
    words = ["--quiet", "--explain", "--json", "-o", "job.sh", *shlex.split(SCRIPTS[name])]
    result = cli("render", *words, "--", "python", "train.py", "--epochs", "3")
    golden = (GOLDEN / f"{name}.sh").read_text()
    assert (work / "job.sh").read_text() == golden
    lines = json.loads(result.stdout)
    assert [line["text"] for line in lines] == golden.removesuffix("\n").split("\n")
    assert [line["line"] for line in lines] == list(range(1, len(lines) + 1))
    for line in lines:
        kinds = [origin["kind"] for origin in line["origins"]]
        assert "template" in kinds if line["text"].strip() else not kinds
        if DIRECTIVE.match(line["text"]):
            assert line["text"] in FIXED or set(kinds) > {"template"}, line
        for origin in line["origins"]:
            if sides := equations(origin["formula"] or ""):
                assert math.floor(sides[0]) == sides[1], origin
    check_places(lines)


@pytest.mark.parametrize("name", ["gadi", "jean-zay", "local", "pbs", "slurm"])
def test_each_number_has_a_basis_with_its_value(name):
    """For every size that may be requested, the plan says what each number was made from, by formulas that hold."""
    profile, planned = search.load(name), 0
    # Every fifth has each of the values with each other one, as none of them comes in fives.
    for partition, size, launcher in list(product(profile.site.partitions, SIZES, ("tasks", "torchrun")))[::5]:
        account = f"ab12{(profile.site.partitions[partition].account_suffixes or [''])[0]}"
        values = {"site": name, "partition": partition, "account": account, "launcher": launcher, "command": ["true"]}
        try:
            plan = make_plan(profile, make_request(values | size))
        except RequestError:
            continue
        planned += 1
        for field in NUMBERS:
            basis, value = plan.basis_of(field), getattr(plan, field)
            assert basis.keys or basis.words or not value, (values | size, field)
            if sides := equations(basis.words):
                assert math.floor(sides[0]) == sides[1] == value, basis
    assert planned > 20


def test_why_there_is_a_jobfs(lines):
    """The question that this is for: the number, the profile's line that it is from, and the key that asks for it."""
    gadi = paths.shipped("site_profiles") / "gadi.yaml"
    said = lines("-s", "gadi", "-N", "2", "-A", "ab12", "--", "true")
    (line,) = [line for line in said if "jobfs" in line["text"]]
    assert line["text"] == "#PBS -l jobfs=800GB"
    where = {origin["key"]: origin["where"] for origin in line["origins"]}
    assert line["origins"][0]["where"] == f"pbs.sh.j2:{line_of(paths.shipped('templates') / 'pbs.sh.j2', '-l jobfs')}"
    assert where["ask_jobfs"] == f"gadi.yaml:{line_of(gadi, 'ask_jobfs: true')}"
    assert where["partitions.gpuvolta.jobfs_gb_per_node"] == f"gadi.yaml:{line_of(gadi, 'and for 800GB')}"
    assert where["nodes"] == "--nodes"
    assert "2 nodes x 400 GB a node = 800" in [origin["formula"] for origin in line["origins"]]


def test_sources_of_one_request(lines, work, monkeypatch):
    """Option, environment and config file are told apart, and the file's line is named."""
    (work / "hpclaunch.yaml").write_text("# mine\naccount: ab12\nenv:\n  A: one\n  B: two\nstorage: [gdata/xy]\n")
    monkeypatch.setenv("HPCLAUNCH_SITE", "gadi")
    monkeypatch.setenv("HPCLAUNCH_SETUP", "echo 1\necho 2")
    said = lines(
        "--nodes", "1", "-t", "90m", "--queue", "normal", "-J", "mine", "--directive", "#PBS -m e", "--", "true"
    )
    assert origins(said, "#PBS -N") == [("option", "--job-name", "job_name")]
    assert origins(said, "#PBS -P") == [("config", "./hpclaunch.yaml:2", "account")]
    assert origins(said, "#PBS -q") == [("option", "--partition", "partition")]
    assert origins(said, "#PBS -m") == [("option", "--directive", "directive")]
    assert origins(said, "export B") == [("config", "./hpclaunch.yaml:5", "env.B")]
    assert origins(said, "echo 2") == [("environment", "HPCLAUNCH_SETUP", "setup")]
    assert origins(said, "command=") == [("option", "COMMAND", "command")]
    assert origins(said, "#PBS -l walltime") == [("option", "--walltime", "walltime")]
    assert ("environment", "HPCLAUNCH_SITE", "site") in origins(said, "# Made by")
    assert ("config", "./hpclaunch.yaml:6", "storage.0") in origins(said, "#PBS -l storage")


def test_every_option_is_an_origin(lines):
    """Every value that a person gave is told as theirs, also the ones that take part in a product."""
    words = {
        "#SBATCH --account": ("-A", "abc@v100", "--account"),
        "#SBATCH --constraint": ("-p", "v100-32g", "--partition"),
        "#SBATCH --qos": ("--qos", "qos_gpu-dev", "--qos"),
        "#SBATCH --nodes": ("-N", "2", "--nodes"),
        "#SBATCH --ntasks-per-node": ("--tasks-per-node", "2", "--tasks-per-node"),
        "#SBATCH --gres": ("--gpus-per-node", "2", "--gpus-per-node"),
        "#SBATCH --cpus-per-task": ("--cpus-per-task", "7", "--cpus-per-task"),
        "#SBATCH --mem": ("--mem-gb", "12", "--mem-gb"),
        "#SBATCH --time": ("-t", "01:30:00", "--walltime"),
        "#SBATCH --requeue": ("--max-attempts", "3", "--max-attempts"),
        "#SBATCH --signal": ("--warn-before", "5m", "--warn-before"),
        "module load m": ("--module", "m", "--module"),
        "venv=": ("--venv", "~/v", "--venv"),
        "#!/bin/bash": ("--template", "slurm", "--template"),
        "    --distribution": ("--launcher", "tasks", "--launcher"),
        "export A": ("--env", "A=1", "--env"),
        "echo mine": ("--setup", "echo mine", "--setup"),
        "#SBATCH --exclusive": ("--directive", "--exclusive", "--directive"),
        "command=": None,
    }
    given = [word for option in words.values() if option for word in option[:2]]
    said = lines("-s", "jean-zay", *given, "--", "python", "train.py")
    for start, option in words.items():
        made = [line for line in said if line["text"].startswith(start) and "/etc/profile" not in line["text"]]
        assert made, start
        places = [origin["where"] for line in made for origin in line["origins"]]
        if option:
            assert option[2] in places, start
    number = line_of(paths.shipped("site_profiles") / "jean-zay.yaml", "--constraint=v100-32g")
    key = "partitions.v100-32g.directives.0"
    assert ("profile", f"jean-zay.yaml:{number}", key) in origins(said, "#SBATCH --constraint")


def test_own_profile_through_extends(lines, work):
    """Through layers of profiles, the file and line are those of the one that really says it."""
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "mine.yaml").write_text(
        "extends: gadi\ntitle: Mine\naccount: ab12\numask: null\npartitions:\n  gpuvolta:\n"
        "    default_mem_gb_per_node: 190.5\nenv:\n  WHERE: $HOME/x\nsetup: [echo 1, echo 2]\n"
    )
    gadi = paths.shipped("site_profiles") / "gadi.yaml"
    said = lines("-s", "mine", "-N", "2", "--", "true")
    assert origins(said, "#PBS -P") == [("profile", "site_profiles/mine.yaml:3", "account")]
    assert origins(said, "export WHERE") == [("profile", "site_profiles/mine.yaml:9", "env.WHERE")]
    assert origins(said, "echo 2") == [("profile", "site_profiles/mine.yaml:10", "setup.1")]
    mem = origins(said, "#PBS -l mem=380GB")
    assert ("profile", "site_profiles/mine.yaml:7", "partitions.gpuvolta.default_mem_gb_per_node") in mem
    assert ("profile", f"gadi.yaml:{line_of(gadi, 'ask_memory')}", "ask_memory") in mem
    assert not any(line["text"].startswith("umask") for line in said)


def test_why_a_file_system_is_named(lines, work, tmp_path):
    """Each file system that a job names is told with the path that needs it, through a link too, or with who asked."""
    disk = tmp_path / "disk"
    for name in ("aa1", "bb2", "cc3"):
        (disk / name / "data").mkdir(parents=True)
    Path("link").symlink_to(disk / "aa1" / "data")
    Path("own.yaml").write_text(f"extends: gadi\ntitle: Own\nmodule_paths: []\nstorage_roots: {{{disk}: gdata}}\n")
    words = ["-s", "own.yaml", "-A", "ab12", "--storage", "gdata/dd4", "--env", f"OUT={disk}/bb2"]
    said = lines(*words, "--venv", f"{disk}/cc3", "--", "python", "train.py", "link/x")
    (line,) = [line for line in said if line["text"].startswith("#PBS -l storage")]
    assert set(line["text"].partition("=")[2].split("+")) == {
        f"gdata/{name}" for name in ("dk92", "aa1", "bb2", "cc3", "dd4")
    }
    formulas = [origin["formula"] for origin in line["origins"] if origin["formula"]]
    assert f"gdata/aa1, for link/x, which leads to {disk}/aa1/data/x" in formulas
    where = {(origin["where"], str(origin["value"])) for origin in line["origins"]}
    assert {("--storage", "gdata/dd4"), ("--env", str({"OUT": f"{disk}/bb2"})), ("--venv", f"{disk}/cc3")} < where
    assert ("--storage", "gdata/aa1") not in where


def test_a_key_from_a_yaml_anchor_has_the_line_where_it_stands(lines, work):
    """A value that came by YAML's << has the line where people would change it."""
    Path("own.yaml").write_text(
        "title: Own\nscheduler: slurm\ndefault_partition: b\n"
        "partitions:\n  a: &a\n    cores_per_node: 8\n  b:\n    <<: *a\n"
    )
    said = lines("-s", "own.yaml", "--", "true")
    assert ("profile", "./own.yaml:6", "partitions.b.cores_per_node") in origins(said, "#SBATCH --cpus-per-task")


def test_own_template_is_named(lines, work):
    """A line of a person's own template names it; what it leaves to the shipped ones names those."""
    (work / "templates").mkdir()
    (work / "templates" / "mine.sh.j2").write_text(
        '{%- extends "builtin/gadi.sh.j2" %}\n{%- macro ask(what, n) %}\n#PBS -l {{ what }}={{ n }}\n{%- endmacro %}\n'
        '{%- block resources %}{{ ask("ngpus", plan.nodes * plan.gpus_per_node) }}\n{{ super() }}{% endblock %}\n'
    )
    said = lines("-s", "gadi", "-N", "2", "--template", "mine", "--", "true")
    first, second = [line for line in said if "ngpus" in line["text"]]
    assert {one["where"] for one in first["origins"][:2]} == {"templates/mine.sh.j2:5", "templates/mine.sh.j2:3"}
    assert "--nodes" in [one["where"] for one in first["origins"]]
    assert second["origins"][0]["where"].startswith("pbs.sh.j2:")


def test_template_that_calls_the_plan(lines, work):
    """What a template calls, or asks whether it is there, has no origin; a number that is 0 has one."""
    (work / "own.sh.j2").write_text(
        '{% extends "builtin/gadi.sh.j2" %}{% block resources %}{{ super() }}\n'
        '# {{ plan.site.find_partition("normal")[0] }} {{ plan.site.nothing is defined }} {{ plan.gpus_per_node }}\n'
        "{% endblock %}"
    )
    said = lines("-s", "gadi", "-p", "normal", "--gpus-per-node", "0", "--template", "./own.sh.j2", "--", "true")
    assert origins(said, "# normal False 0") == [("option", "--gpus-per-node", "gpus_per_node")]


def test_template_that_works_on_its_own_output(cli, lines, work):
    """Where a template's text cannot be followed, the script is right all the same, its lines without an origin."""
    Path("odd.sh.j2").write_text(
        "#!/bin/bash\n{% macro m() %}olleh{% endmacro %}{{ m() | reverse }}\n"
        '{{ "same" if m() == "olleh" else "changed" }}\n{{ m() | length }}\n'
    )
    script = cli("render", "-s", "local", "--template", "./odd.sh.j2", "--quiet", "--", "true").stdout
    assert script == "#!/bin/bash\n# Not shipped with hpclaunch: ./odd.sh.j2\nhello\nsame\n5\n"
    said = lines("-s", "local", "--template", "./odd.sh.j2", "--", "true")
    assert [line["text"] for line in said] == script.splitlines()
    assert [len(line["origins"]) for line in said] == [2, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("words", "start", "told"),
    [
        (
            "-s jean-zay -A a@v100 -t 30h",
            "#SBATCH --qos",
            "the first QoS that takes 30:00:00 on 4 GPUs; not qos_gpu-t3",
        ),
        ("-s jean-zay -A a@v100 -p gpu_p1", "#SBATCH --constraint", None),
        ("-s gadi -A ab12 --gpus-per-node 1", "#PBS -l mem", "380 GB x 12 / 48 cpus = 95"),
        ("-s gadi -A ab12 --tasks-per-node 2", "#PBS -l ngpus", "one for each of 2 tasks a node = 2"),
        ("-s gadi -A ab12 -p copyq", "#PBS -l ncpus", "one core, as the profile has no cores_per_node = 1"),
        ("-s gadi -A ab12 -N 2", "#PBS -l ncpus", "all cores of a node, as there are several nodes = 48"),
        ("-s gadi -A ab12 --max-attempts 2", "export HPCLAUNCH_WARN_AT", "3600 s - 120 s = 3480"),
        ("-s gadi -A ab12 --max-attempts 2", "#PBS -r y", None),
        ("-s pbs -p any", "#PBS -q", None),
        ("-s jean-zay -A a@v100 --launcher torchrun", "#SBATCH --ntasks-per-node", "one, as torchrun starts the ranks"),
        ("-s gadi -A ab12", "command=", "the bundled workload mnist, as no COMMAND is given"),
        ("-s gadi -A ab12 --workload env", "command=", "the bundled workload env"),
    ],
)
def test_why(lines, words, start, told):
    """Each choice that was made for a person is told in words and numbers."""
    (line,) = [line for line in lines(*words.split()) if line["text"].startswith(start)]
    formulas = [origin["formula"] for origin in line["origins"] if origin["formula"]]
    assert any(told in formula for formula in formulas) if told else line["origins"][1:]


def test_for_people(cli, work):
    """Each line stands behind its template's line, its reasons below, and no reason is wider than the screen."""
    result = cli("render", "-s", "gadi", "-N", "2", "-A", "ab12", "--explain", "--quiet", "--", "python", "train.py")
    shown = result.stdout.splitlines()
    plain = cli("render", "-s", "gadi", "-N", "2", "-A", "ab12", "--quiet", "--", "python", "train.py").stdout
    notes = [line for line in shown if line.startswith(27 * " ")]
    assert [line[26:] for line in shown if line not in notes] == plain.splitlines()
    assert max(map(len, notes)) <= 120
    place = f"pbs.sh.j2:{line_of(paths.shipped('templates') / 'pbs.sh.j2', '-l mem=')}"
    where = shown.index(f"{place:25} #PBS -l mem=760GB")
    gadi = paths.shipped("site_profiles") / "gadi.yaml"
    assert [line.strip() for line in shown[where + 1 : where + 5]] == [
        "<- mem_gb: 2 nodes x 380 GB a node = 760",
        "<- --nodes 2 (command line)",
        f"<- partitions.gpuvolta.default_mem_gb_per_node: 380 (gadi.yaml:{line_of(gadi, 'NCI asks for 760GB')})",
        f"<- ask_memory: true (gadi.yaml:{line_of(gadi, 'ask_memory')})",
    ]


def test_odd_values_stay_on_their_line(cli):
    """A value with line breaks, terminal codes, marks like our own or bytes that are no text disturbs nothing."""
    value = "A=1\n2\x1b[31m\x0113\x02\udcff"
    plain = cli("render", "-s", "local", "--quiet", "--env", value, "--", "true", 500 * "y").stdout
    shown = cli("render", "-s", "local", "--quiet", "--explain", "--env", value, "--", "true", 500 * "y").stdout
    notes = [line for line in shown.splitlines() if line.startswith(27 * " ") and "<-" in line]
    assert [line[26:] for line in shown.splitlines() if line.startswith("base.sh.j2:") and "export A=" in line] == [
        line for line in plain.splitlines() if line.startswith("export A=")
    ]
    assert any(r"<- --env A=$'1\x0a2\x1b[31m\x0113\x02\xff' (command line)" in note for note in notes)
    assert max(map(len, notes)) <= 120


def test_output_file_gets_the_script(cli, work):
    """With -o the script goes to its file as ever, and the explanation to stdout."""
    plain = cli("render", "-s", "local", "--quiet", "--", "true").stdout
    result = cli("render", "-s", "local", "--quiet", "--explain", "-o", "job.sh", "--", "true")
    assert (work / "job.sh").read_text() == plain
    assert result.stdout.startswith("base.sh.j2:1 ")


def test_json_alone_is_refused(cli):
    """--json without --explain is a mistake in usage that says so."""
    result = cli("render", "-s", "local", "--json", "--", "true")
    assert result.exit_code == 2
    assert "--json goes with --explain" in result.stderr


def test_rendering_does_not_pay_for_it():
    """`render` alone does not import what explains."""
    code = (
        "import sys; from hpclaunch.cli import main\n"
        "main(['render', '-s', 'gadi', '--quiet', '--', 'true'], standalone_mode=False)\n"
        "assert not [name for name in sys.modules if 'explain' in name]"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
