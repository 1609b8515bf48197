"""`hpclaunch check`: everything at once, the plan as a table, and what a person may force."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from hpclaunch.job.checks import CHECKS

GADI = ("check", "--site", "gadi", "-A", "ab12")
TRAIN = ("--", "python", "train.py")


@pytest.fixture(autouse=True)
def train(work):
    """The program that the commands name."""
    (work / "train.py").touch()


def test_a_job_that_is_fine_shows_its_plan(cli):
    """Nothing is refused: the exit code is 0 and stdout is the plan, every number of it."""
    result = cli(*GADI, "--nodes", "2", "-t", "90m", *TRAIN)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = dict(
        line.split(maxsplit=1) for line in result.stdout.splitlines() if not line.startswith(("gpus ", "cpus "))
    )
    assert lines["partition"] == "gpuvolta"
    assert lines["walltime"] == "01:30:00"
    assert "gpus per node   4\n" in result.stdout
    assert "cost at most    432 SU = 3 SU x " in result.stdout
    assert "command         python train.py\n" in result.stdout
    assert re.search(
        "^fine +gadi gpuvolta: 2 nodes .*at most 432 SU; nothing refused, 0 warnings\n\\Z", result.stdout, re.M
    )


def test_everything_is_said_at_once(cli):
    """A wrong word, an impossible time, a wrong size and a warning are told in one go, refusals first; exit 1."""
    words = ("--nodes", "3", "--gpus-per-node", "2", "-t", "48:00", "--job-name", "a b", "--venv", "~/envs/x")
    result = cli(*GADI, *words, "--force", "wall", *TRAIN)
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        "refused  option",
        "refused  walltime",
        "refused  force",
        "refused  whole-nodes",
        "warning  home",
    ]
    assert "there is no check 'wall' (did you mean walltime?)" in result.stdout


def test_without_a_partition_the_rest_is_checked(cli):
    """An unknown partition hides nothing that would be wrong on any, and no number is made up for it."""
    result = cli("check", "--site", "gadi", "-q", "gpuvlta", "-A", "your_project", "-t", "99h", *TRAIN)
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        "refused  partition",
        "refused  placeholders",
    ]


def test_json_is_for_machines(cli):
    """`--json` has each finding with its check, key and source, and the plan's numbers."""
    result = cli(*GADI, "--nodes", "21", "--json", *TRAIN)
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["refused"]) == (1, True)
    (finding,) = answer["diagnostics"]
    assert (finding["check"], finding["key"], finding["refuses"]) == ("size", "partitions.gpuvolta.max_cores", True)
    assert finding["source"].startswith("gadi.yaml:")
    assert (answer["plan"]["nodes"], answer["plan"]["world_size"]) == (21, 84)
    assert json.loads(cli(*GADI, "-q", "nope", "--json", *TRAIN).stdout)["plan"] is None


def test_force_makes_a_check_warn(cli):
    """A forced check warns, on every command and in the script's own first lines; the others still refuse."""
    words = ("--site", "gadi", "-A", "ab12", "-t", "50h", "--force", "walltime")
    assert cli("check", *words, *TRAIN).stdout.startswith(
        "warning  walltime: 50:00:00 exceeds gpuvolta's limit of 48:00:00"
    )
    script = cli("render", *words, *TRAIN)
    assert "hpclaunch: warning: walltime: 50:00:00 exceeds" in script.stderr
    assert "#PBS -l walltime=50:00:00\n" in script.stdout
    assert "--walltime 50h --force walltime -- python" in script.stdout
    assert cli("render", *words, "--nodes", "99", *TRAIN).exit_code == 1


def test_force_comes_from_the_config_file_too(cli, work):
    """What a person forces always stands in their hpclaunch.yaml."""
    (work / "hpclaunch.yaml").write_text("site: gadi\naccount: ab12\nforce: [walltime]\n")
    assert cli("check", "-t", "50h", *TRAIN).exit_code == 0


def test_a_qos_of_a_grant_can_be_forced(cli):
    """A QoS that the profile does not know is refused, and forced it is asked for as it is given."""
    words = ("render", "--site", "jean-zay", "-A", "abc@v100", "--qos", "qos_gpu-xy", "-t", "30h")
    assert "partition v100 has no QoS 'qos_gpu-xy'" in cli(*words, *TRAIN).stderr
    assert "#SBATCH --qos=qos_gpu-xy\n" in cli(*words, "--force", "qos", *TRAIN).stdout


@pytest.mark.parametrize(
    ("words", "check"),
    [(("-t", "48:00"), "walltime"), (("-q", "nope"), "partition"), (("--workload", "x"), "workload")],
)
def test_nothing_to_render_cannot_be_forced(cli, words, check):
    """A word that means nothing here leaves no script to make, and --force says so."""
    result = cli("render", "--site", "gadi", *words, "--force", check)
    assert result.exit_code == 1
    assert f"(--force {check} cannot help: there is nothing to render)" in result.stderr


def test_force_completes_the_checks_names(cli, monkeypatch):
    """The shell completes what can be forced."""
    monkeypatch.setenv("_HPCLAUNCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "hpclaunch check --force wall")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert cli().stdout.split() == ["plain,walltime"]


MODULES = """
import sys
from hpclaunch.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_check_imports_nothing_that_render_does_not():
    """`check` starts as fast as `render`: besides its own file it imports nothing more."""

    def modules(command: str) -> set[str]:
        words = [command, "--site", "gadi", "-A", "ab12", *(["--quiet"] if command == "render" else []), *TRAIN]
        run = subprocess.run(
            [sys.executable, "-c", MODULES, *words],
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return set(run.stderr.split())

    assert modules("check") - modules("render") == {"hpclaunch.cli.check"}


def test_the_table_of_checks_is_up_to_date():
    """docs/checks.md lists every check as the code has it."""
    from pathlib import Path

    root = Path(__file__).parents[2]
    made = subprocess.run(
        [sys.executable, root / "docs" / "checks.py"], capture_output=True, text=True, check=True
    ).stdout
    assert made == (root / "docs" / "checks.md").read_text(), "run make docs"
    assert all(f"| `{name}` |" in made for name in CHECKS)
