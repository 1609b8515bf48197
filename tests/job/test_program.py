"""The program of a command: what is not there is refused before anything is submitted, with the file that was meant."""

from __future__ import annotations

import shlex

import pytest
from conftest import call

LIGHTNING = "import lightning\nlightning.Trainer().fit()\n"
SAVING = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))\n"


@pytest.fixture(autouse=True)
def project(work):
    """A folder as people have it: programs, a package, one file that is executable and one that is not."""
    (work / "pkg").mkdir()
    for name in ("train.py", "pkg/__init__.py", "pkg/main.py", "job.sh", "run.sh"):
        (work / name).touch()
    (work / "run.sh").chmod(0o755)
    (work / "saves.py").write_text(SAVING)
    (work / "fit.py").write_text(LIGHTNING)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python trian.py --epochs 3", "there is no file trian.py (did you mean train.py?)"),
        ("python -u -X dev trian.py", "there is no file trian.py (did you mean train.py?)"),
        ("python3.11 trian.py model=x", "there is no file trian.py (did you mean train.py?)"),
        ("torchrun --nproc-per-node 1 trian.py", "there is no file trian.py (did you mean train.py?)"),
        ("env A=1 python trian.py", "there is no file trian.py (did you mean train.py?)"),
        ("bash -e jbo.sh", "there is no file jbo.sh (did you mean job.sh?)"),
        ("./nofile.sh", "there is no program ./nofile.sh"),
        ("./job.sh", "./job.sh is not executable; use bash ./job.sh"),
        ("train.py --epochs 3", "train.py is no program on PATH; use python train.py"),
        ("trian.py", "trian.py is no program on PATH (did you mean train.py?)"),
    ],
)
def test_a_program_that_is_not_there_is_refused(cli, work, command, said):
    """`submit` and `run` refuse a program that this folder does not have; `render` and `check` warn of it."""
    site, words = ("--site", "gadi", "-A", "ab12", "--gpus-per-node", "1"), ("--", *shlex.split(command))
    for verb in ("submit", "run"):
        result = cli(verb, *site, *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"hpclaunch: program: {said}" in result.stderr
    assert not (work / "hpclaunch-runs").exists()
    rendered = cli("render", *site, *words)
    assert rendered.exit_code == 0 and f"hpclaunch: warning: program: {said}" in rendered.stderr
    assert f"warning  program: {said}" in cli("check", *site, *words).stdout


@pytest.mark.parametrize(
    "command",
    [
        *(
            "python train.py model=x.py",
            "python -c 'import x'",
            "python - x.py",
            "python $SCRIPT",
            "python -m pkg.main",
        ),
        *(
            "python -m trainer",
            "env A=1 my-tool out.py",
            "python -m json.tool",
            "python -W ignore train.py",
            "python pkg",
            "torchrun train.py",
            "./run.sh a.py",
        ),
        *(
            "bash -c 'python trian.py'",
            "bash -o pipefail job.sh",
            "my-own-tool x.py",
            "/g/data/ab12/env/bin/python train.py",
            "bash -euo pipefail job.sh",
            "bash +x job.sh",
            "bash -eo pipefail -c 'python trian.py'",
            "python -uW ignore train.py",
            "torchrun -m pkg.main out.py",
            "python -m torch.distributed.run --no-python ./run.sh out.py",
        ),
    ],
)
def test_what_may_be_there_is_not_refused(cli, command):
    """What a shell, a module or the site's disks may bring is nothing to refuse, nor what only looks like a file."""
    words = ("--site", "gadi", "-A", "ab12", "--gpus-per-node", "1", "--", *shlex.split(command))
    assert "program: " not in cli("submit", "--dry-run", *words).stderr


def test_a_path_that_only_the_job_may_know_is_warned_of(cli):
    """An absolute path, and what setup, another folder, or a module may bring, may be there in the job: they warn."""
    words = ("submit", "--dry-run", "--site", "gadi", "-A", "ab12")
    program = ("--", "python", "x.py")
    for more in (
        ("--", "python", "/g/data/ab12/x.py"),
        ("--setup", "cd src", *program),
        ("--setup", "tar xf code.tar", *program),
        ("--", "env", "-C", "src", *program[1:]),
    ):
        result = cli(*words, *more)
        assert result.exit_code == 0 and "warning: program: there is no file " in result.stderr
    assert "program" not in cli(*words, "--module", "alphafold", "--", "run_alphafold.sh").stderr
    assert cli(*words, "--setup", "export A=1", "--setup", "module load x", *program).exit_code == 1
    slurm = ("submit", "--dry-run", "--site", "jean-zay", "-A", "abc@v100")
    assert cli(*slurm, "--directive=--chdir=src", *program).exit_code == 0
    assert cli("submit", "--dry-run", "--site", "gadi", "--force", "program", "--", "python", "x.py").exit_code == 0


def test_on_this_machine_every_program_is_known(work):
    """Here PATH and absolute paths are the job's own: what is missing is refused, and what a venv may bring is not."""
    call("run", "--", "no-such-program", code=1)
    call("run", "--", "python", "/no/such.py", code=1)
    call("run", "--setup", f"PATH={work}:$PATH", "--", "run.sh")


@pytest.mark.parametrize(
    ("site", "command", "warned"),
    [
        ("gadi", "python fit.py", True),  # Lightning requeues on Slurm only
        ("jean-zay", "python fit.py", False),
        ("jean-zay", "python train.py", True),
        ("jean-zay --launcher torchrun", "python fit.py", True),
        ("gadi", "python saves.py", False),
        ("gadi", "python -m pkg.main", False),  # it cannot be known
        ("gadi", "bash -c 'trap : USR1; sleep 1; exit 75'", False),
        ("gadi", "", False),  # the bundled training
    ],
)
def test_attempts_of_what_does_not_save_are_warned_of(cli, site, command, warned):
    """With --max-attempts, a command in which nothing shows that it saves is told to begin anew each time."""
    account = ("--site", *site.split(), "-A", "abc@v100")
    words = ("--", *shlex.split(command)) if command else ()
    result = cli("submit", "--dry-run", *account, "--max-attempts", "3", *words)
    assert result.exit_code == 0
    assert ("each attempt would begin at step 0" in result.stderr) == warned
    assert "step 0" not in cli("submit", "--dry-run", *account, *words).stderr


@pytest.mark.parametrize(("words", "exit_code"), [(("submit", "--dry-run"), 1), (("render",), 0)])
def test_a_folder_for_the_output_is_missing_where_the_job_is_submitted(cli, work, words, exit_code):
    """Submit refuses what is not in this folder; render only warns, as another machine may have it."""
    result = cli(*words, "--site", "jean-zay", "--directive=--output=logs/%j.out", "--", "python", "train.py")
    assert result.exit_code == exit_code
    assert "there is no folder logs" in result.stderr
    (work / "logs").mkdir()
    result = cli(*words, "--site", "jean-zay", "--directive=--output=logs/%j.out", "--", "python", "train.py")
    assert "no folder" not in result.stderr
