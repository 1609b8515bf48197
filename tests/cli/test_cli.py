"""The command line: where options come from, what is printed where, how mistakes end."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import start

import hpclaunch
from hpclaunch import paths

RENDER = ("render", "--site", "gadi", "-A", "ab12")


def test_version_and_module(cli):
    """`hpclaunch --version` and `python -m hpclaunch` work."""
    assert cli("--version").stdout == f"hpclaunch, version {hpclaunch.__version__}\n"
    run = subprocess.run([sys.executable, "-m", "hpclaunch", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"hpclaunch, version {hpclaunch.__version__}\n"


def test_script_goes_to_stdout_and_talk_to_stderr(cli, work):
    """Stdout is the script alone; the summary is on stderr, and --quiet silences it."""
    (work / "train.py").touch()
    result = cli(*RENDER, "--nodes", "2", "--", "python", "train.py")
    assert result.stdout.startswith("#!/bin/bash\n")
    assert "hpclaunch: gadi gpuvolta: 2 nodes x 4 tasks = world size 8" in result.stderr
    quiet = cli(*RENDER, "--nodes", "2", "--quiet", "--", "python", "train.py")
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


def test_script_goes_to_a_file(cli, work):
    """-o writes the same bytes; a folder that is missing is said so."""
    printed = cli(*RENDER, "--", "true").stdout
    assert cli(*RENDER, "-o", "job.sh", "--", "true").stdout == ""
    assert (work / "job.sh").read_text() == printed
    missing = cli(*RENDER, "-o", "no/job.sh", "--", "true")
    assert missing.exit_code == 1
    assert missing.stderr.endswith("hpclaunch: no/job.sh: No such file or directory\n")


def test_a_dash_is_stdin_and_no_file_of_that_name(cli, work):
    """What is read may come from a pipe; what is written has a name."""
    for words, text, says in (
        (("check", "--site", "gadi", "--script", "-"), "#!/bin/bash\n#PBS -q nowhere\n", "nowhere"),
        (("submit", "-s", "local", "--dry-run", "--sweep-file", "-", "--", "echo", "{lr}"), "lr\n0.5\n", "echo 0.5"),
    ):
        process = start(*words, stdin=subprocess.PIPE)
        assert says in process.communicate(text, timeout=60)[0]
    for words in ((*RENDER, "-o", "-", "--", "true"), ("report", "--html", "-"), ("workload", "copy", "mnist", "-")):
        result = cli(*words)
        assert (result.exit_code, "'-' is not stdout here; use the name of a file" in result.stderr) == (2, True)
    assert list(work.iterdir()) == []


def test_command_needs_no_dashes(cli):
    """Like srun, everything from the command on is the command's."""
    assert cli(*RENDER, "python", "train.py", "--nodes", "7").stdout.count("command=(python train.py --nodes 7)") == 1


def test_without_a_command_the_bundled_training_is_run_by_its_absolute_path(cli):
    """The job's own python, which is seldom hpclaunch's, can run the workload by its file."""
    assert f"command=(python {shlex.quote(str(paths.WORKLOADS['mnist']))})" in cli(*RENDER).stdout
    assert paths.WORKLOADS["mnist"].is_absolute()


@pytest.mark.parametrize("name", ["mnist", "resnet", "env", "allreduce", "preflight"])
def test_workload_is_chosen_by_name(cli, name):
    """--workload takes COMMAND's place; the job has its name, the provenance line says it, a dataset is for mnist."""
    script = cli(*RENDER, "--workload", name).stdout
    assert f"command=(python {shlex.quote(str(paths.WORKLOADS[name]))})" in script
    assert f"#PBS -N {name}\n" in script
    assert f"hpclaunch render --site gadi --account ab12 --workload {name}\n" in script
    script = cli("render", "--site", "jean-zay", "-A", "abc@v100", "--workload", name).stdout
    assert ("export MNIST_DIR=" in script) == (name == "mnist")


def test_workload_can_come_from_the_environment_or_the_config_file(cli, work, monkeypatch):
    """The nearer of COMMAND and workload counts: command line, environment, config file."""
    (work / "hpclaunch.yaml").write_text("workload: env\n")
    assert "workloads/env.py" in cli(*RENDER).stdout
    assert "command=(true)" in cli(*RENDER, "true").stdout
    monkeypatch.setenv("HPCLAUNCH_WORKLOAD", "mnist")
    assert "workloads/mnist.py" in cli(*RENDER).stdout
    (work / "hpclaunch.yaml").write_text("command: [python, train.py]\n")
    assert "workloads/mnist.py" in cli(*RENDER).stdout
    assert "workloads/allreduce.py" in cli(*RENDER, "--workload", "allreduce").stdout
    monkeypatch.delenv("HPCLAUNCH_WORKLOAD")
    assert "command=(python train.py)" in cli(*RENDER).stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("-q", "normal"), "#PBS -q normal"),
        (("--queue", "normal"), "#PBS -q normal"),
        (("-C", "normal"), "#PBS -q normal"),
        (("--time", "2h"), "#PBS -l walltime=02:00:00"),
        (("-P", "xy34"), "#PBS -P xy34"),
        (("--project", "xy34"), "#PBS -P xy34"),
        (("-t", "2h"), "#PBS -l walltime=02:00:00"),
        (("-J", "mine"), "#PBS -N mine"),
        (("--mem-gb", "100"), "#PBS -l mem=100GB"),
        (("--storage", "gdata/ab12", "--storage", "scratch/xy34"), "storage=gdata/dk92+gdata/ab12+scratch/xy34"),
        (
            ("--module", "pytorch/2.1", "--module", "cuda/12"),
            "module load pytorch/2.1 || { at='module load pytorch/2.1'; exit 1; }\nmodule load cuda/12",
        ),
        (("--venv", "~/my env"), "venv=\"$HOME\"'/my env'"),
        (("--env", "A=it's $HOME"), "export A='it'\"'\"'s $HOME'"),
        (("--setup", "ulimit -n 4096"), "\nulimit -n 4096\n"),
        (("--directive", "-m abe"), "#PBS -m abe"),
        (("--directive", "#PBS -m abe"), "\n#PBS -m abe"),
        (("--launcher", "mpirun"), "mpirun -n 4 --bind-to none --map-by ppr:4:node"),
    ],
)
def test_option_reaches_the_script(cli, words, line):
    """Each option ends in the line that the site's documentation has."""
    result = cli(*RENDER, *words, "--", "true")
    assert line in result.stdout, result.stderr


def test_a_script_wins_over_the_command_of_the_config_file(cli, work):
    """--script goes with a project's own command in hpclaunch.yaml, and not with one that is typed too."""
    (work / "hpclaunch.yaml").write_text("command: [python, nothing.py]\n")
    (work / "job.sh").write_text("#!/bin/bash\ntrue\n")
    words = ("submit", "--dry-run", "--site", "pbs", "--script", "job.sh")
    assert cli(*words).stdout == "#!/bin/bash\ntrue\n"
    assert cli(*words, "--", "true").exit_code == 1


def test_options_that_a_script_would_not_follow_are_refused(cli, work, monkeypatch):
    """What is typed beside --script and would change nothing is named; a variable, a site and a limit may stand."""
    (work / "job.sh").write_text("#!/bin/bash\ntrue\n")
    monkeypatch.setenv("HPCLAUNCH_ACCOUNT", "ab12")
    words = ("submit", "--dry-run", "--site", "pbs", "--max-cost", "3", "--script", "job.sh")
    assert cli(*words).stdout == "#!/bin/bash\ntrue\n"
    refused = cli(*words, "-N", "4", "--env", "A=1")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--nodes, --env: job.sh is submitted as it is; use a directive in it" in refused.stderr


def test_every_option_can_come_from_the_environment(cli, monkeypatch):
    """HPCLAUNCH_<OPTION> stands for the option; the command line wins."""
    expected = cli(*RENDER, "-N", "2", "--setup", "a b", "--setup", "c", "--env", "X=1 2", "--", "true").stdout
    settings = {"SITE": "gadi", "ACCOUNT": "ab12", "NODES": "2", "SETUP": "a b\nc", "ENV": "X=1 2"}
    for name, value in settings.items():
        monkeypatch.setenv(f"HPCLAUNCH_{name}", value)
    assert cli("render", "--", "true").stdout == expected
    assert "-l ncpus=144" in cli("render", "-N", "3", "--", "true").stdout


def test_every_option_can_come_from_a_config_file(cli, work, monkeypatch):
    """./hpclaunch.yaml, else the user's, has the options by their names; environment and command line win."""
    expected = cli(*RENDER, "-N", "2", "--setup", "a b", "--env", "X=1", "--", "python", "t.py").stdout
    text = "site: gadi\naccount: ab12\nnodes: 2\nsetup: [a b]\nenv: {X: '1'}\ncommand: [python, t.py]\n"
    paths.user_config().mkdir(parents=True)
    (paths.user_config() / "hpclaunch.yaml").write_text(text)
    assert cli("render").stdout == expected
    (work / "hpclaunch.yaml").write_text("site: gadi\nnodes: 4\n")
    assert "-l ncpus=192" in cli("render", "--", "true").stdout
    monkeypatch.setenv("HPCLAUNCH_NODES", "3")
    assert "-l ncpus=144" in cli("render", "--", "true").stdout


def test_mistakes_in_the_config_file_are_named(cli, work):
    """A wrong key or value in the config is refused with file and line."""
    (work / "hpclaunch.yaml").write_text("site: gadi\nnode: 2\nwalltime: 48:00:00\n")
    result = cli("render", "--", "true")
    assert result.exit_code == 1
    assert result.stderr == (
        "hpclaunch: hpclaunch.yaml:2: node: unknown key (did you mean nodes?)\n"
        'hpclaunch: hpclaunch.yaml:3: walltime: YAML reads 48:00:00 as a number: quote it, "48:00:00"\n'
    )


def test_unknown_host_lists_the_sites(cli, monkeypatch):
    """With no site to be found, the message says how to give one and which there are."""
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    monkeypatch.setattr("socket.getfqdn", lambda: "laptop.lan")
    result = cli("render", "--", "true")
    assert result.exit_code == 1
    assert "No profile knows this host, laptop or laptop.lan" in result.stderr
    assert "known: dies, gadi, jean-zay, local, pbs" in result.stderr
    monkeypatch.setattr("socket.gethostname", lambda: "gadi-login-01")
    assert cli("render", "--", "true").stdout.count("#PBS -q gpuvolta") == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("render", "--site", "gady"), 1, "hpclaunch: no site profile 'gady' (did you mean gadi?)"),
        (
            ("render", "--site", "jean-zay", "-p", "v100", "--gpus-per-node", "5"),
            1,
            "hpclaunch: gpus: 5 GPUs per node, but a ",
        ),
        ((*RENDER, "-t", "2 days"), 1, "hpclaunch: walltime: '2 days' is no walltime"),
        ((*RENDER, "-J", "a\nb"), 1, "hpclaunch: --job-name: expected at most 230 letters"),
        ((*RENDER, "--template", "gady"), 1, "hpclaunch: no template 'gady.sh.j2' (did you mean gadi?)"),
        ((*RENDER, "--template", "no/such.sh.j2"), 1, "hpclaunch: no template 'such.sh.j2'"),
        ((*RENDER, "--noeds", "2"), 2, "No such option"),
        ((*RENDER, "--nodes", "0"), 2, "0 is not in the range x>=1"),
        ((*RENDER, "--nodes", "two"), 2, "'two' is not a valid integer range"),
        ((*RENDER, "--launcher", "mpi"), 2, "'mpi' is not one of"),
        ((*RENDER, "--env", "A-B=1"), 1, "--env: expected a variable's name"),
        (("frobnicate",), 2, "No such command 'frobnicate'."),
        (("rednder",), 2, "No such command 'rednder' (did you mean render?)"),
        (("site", "lst"), 2, "No such command 'lst' (did you mean list?)"),
        (
            (*RENDER, "--workload", "alreduce"),
            1,
            "hpclaunch: workload: there is no 'alreduce' (did you mean allreduce?)",
        ),
        ((*RENDER, "--workload", "env", "true"), 1, "give a COMMAND or --workload env, not both"),
        (("workload", "copy", "mnits", "train.py"), 1, "no workload 'mnits' (did you mean mnist?)"),
        (("workload", "copy", "mnist", "no/train.py"), 1, "no/train.py: No such file or directory"),
        (("render", "-s", 300 * "x" + ".yaml"), 1, "cannot be read: File name too long"),
        (("render", "-s", 300 * "x"), 1, "File name too long"),
    ],
)
def test_a_mistake_is_one_clear_message(work, words, code, message):
    """Bad input gives a message and exit code 1 or 2, and nothing on stdout; a traceback never."""
    result = subprocess.run(
        [sys.executable, "-m", "hpclaunch", *words], capture_output=True, text=True, check=False, cwd=work
    )
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_own_template_wins_and_can_extend_the_shipped_one(cli, work):
    """A block of a person's own template takes the place of the shipped one's."""
    (work / "templates").mkdir()
    (work / "templates" / "gadi.sh.j2").write_text(
        '{% extends "builtin/gadi.sh.j2" %}\n{% block run_folder %}echo mine\n{{ super() }}{% endblock %}\n'
    )
    script = cli(*RENDER, "--", "true").stdout
    assert "\necho mine\n" in script
    assert "#PBS -q gpuvolta" in script
    assert cli(*RENDER, "--template", "builtin/gadi", "--", "true").exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% if %}", "bad.sh.j2:1: "),
        ("{{ nodes }}", "'nodes' is undefined"),
        ("{{ plan.nods }}", "has no attribute 'nods'"),
        ('{% extends "gone.sh.j2" %}', "no template 'gone.sh.j2'"),
        ("{{ 1 / 0 }}", "division by zero"),
        (
            '{% extends "builtin/gadi.sh.j2" %}\n{% block folder %}{% endblock %}',
            "bad.sh.j2:2: unknown block 'folder' (did you mean run_folder?)",
        ),
    ],
)
def test_broken_template_is_one_message(cli, work, text, message):
    """A mistake in a template ends in a message that names it."""
    (work / "bad.sh.j2").write_text(text)
    result = cli(*RENDER, "--template", "./bad.sh.j2", "--", "true")
    assert result.exit_code == 1
    assert message in result.stderr


def test_same_request_same_bytes_in_any_environment(cli, monkeypatch, tmp_path):
    """No clock, no host and no environment is in a script."""
    first = cli(*RENDER, "--nodes", "2", "--", "true").stdout
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("VIRTUAL_ENV", "/x")
    monkeypatch.setenv("TZ", "Australia/Canberra")
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert cli(*RENDER, "--nodes", "2", "--", "true").stdout == first


def test_cache_of_templates_changes_nothing(cli, work, monkeypatch, tmp_path):
    """The same bytes come from a cold cache, a warm one, a damaged one, and where there can be none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = cli(*RENDER, "--", "true").stdout
    assert cli(*RENDER, "--", "true").stdout == first
    cached = list((paths.user_cache()).iterdir())
    assert cached
    for file in cached:
        file.write_bytes(b"j2" + bytes(100))
    assert cli(*RENDER, "--", "true").stdout == first
    (work / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(work / "file" / "below"))
    assert cli(*RENDER, "--", "true").stdout == first


def test_rendering_stays_light():
    """`render` imports neither torch nor Lightning nor submitit, which take seconds on a network file system."""
    probe = (
        "import sys\n"
        "from hpclaunch.cli import main\n"
        "main(['render', '--site', 'gadi', '--quiet', '--', 'true'], standalone_mode=False)\n"
        "print([m for m in ('torch', 'pytorch_lightning', 'submitit', 'rich', 'numpy') if m in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_sites_as_json_is_for_machines(cli):
    """`sites --json` is JSON on stdout and nothing else."""
    assert {row["name"] for row in json.loads(cli("site", "list", "--json").stdout)} == {
        "dies",
        "gadi",
        "jean-zay",
        "local",
        "pbs",
        "slurm",
        "tiles",
    }


def test_workloads_are_listed_with_what_they_do(cli):
    """Each bundled program has a line of its own words; --json is for machines."""
    listed = cli("workload", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == [
        "WORKLOAD",
        "mnist",
        "resnet",
        "env",
        "allreduce",
        "preflight",
    ]
    rows = json.loads(cli("workload", "list", "--json").stdout)
    assert {row["name"]: row["file"] for row in rows} == {name: str(path) for name, path in paths.WORKLOADS.items()}
    assert all(len(row["title"]) > 40 for row in rows)


def test_workload_is_copied_to_be_edited(cli, work):
    """The copy is the person's own; what to run next is said, and a file that is there stays as it is."""
    result = cli("workload", "copy", "mnist", "my train.py")
    assert (result.exit_code, result.stdout) == (0, "my train.py\n")
    assert "hpclaunch run --tasks-per-node 2 -- python 'my train.py'" in result.stderr
    assert "keep what it imports beside it: digits.py, training.py, layout.py, resume.py" in result.stderr
    for name in paths.COMPANIONS["mnist"]:
        assert (work / name).read_text() == paths.WORKLOADS["mnist"].with_name(name).read_text()
        assert name in (work / "my train.py").read_text().split('"""')[1]  # its docstring names what it imports
    assert (work / "my train.py").read_text() == paths.WORKLOADS["mnist"].read_text()
    (work / "my train.py").write_text("mine")
    again = cli("workload", "copy", "env", "my train.py")
    assert (again.exit_code, again.stderr) == (
        1,
        "hpclaunch: my train.py exists and is not a copy of env's; use another name or folder\n",
    )
    refused = cli(*RENDER, "-o", "my train.py", "--", "python", "my train.py")
    assert (refused.exit_code, "my train.py exists and is not a script of hpclaunch's" in refused.stderr) == (1, True)
    assert (work / "my train.py").read_text() == "mine"
    (work / "folder").mkdir()
    assert cli("workload", "copy", "env", "folder").stdout == "folder/env.py\n"
    assert cli("workload", "copy", "mnist", "second.py").exit_code == 0  # the same digits.py serves both


def test_the_file_that_saves_and_resumes_is_copied(cli, work):
    """It gets its own name if no other is given, and its import is said."""
    result = cli("workload", "copy", "resume")
    assert (result.exit_code, result.stdout) == (0, "resume.py\n")
    assert "from resume import SaveAndLeave, resume_path, trainer_places" in result.stderr
    assert (work / "resume.py").read_text() == paths.MODULES["resume"].read_text()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("train.py", "digits.py exists and is not a copy of mnist's; use another name or folder"),
        ("digits.py", "digits.py is the name of a file that mnist imports; use another name"),
    ],
)
def test_copy_does_not_mix_with_other_files(cli, work, file, message):
    """A file of one's own that has the name of an imported one is not touched, and nothing is left half copied."""
    (work / "digits.py").write_text("mine")
    result = cli("workload", "copy", "mnist", file)
    assert (result.exit_code, result.stderr) == (1, f"hpclaunch: {message}\n")
    assert [path.name for path in work.iterdir() if path.suffix == ".py"] == ["digits.py"]
    assert (work / "digits.py").read_text() == "mine"


@pytest.mark.parametrize(("command", "site"), [("sbatch", "slurm"), ("qsub", "pbs")])
def test_an_unknown_login_node_gets_the_profile_of_its_scheduler(cli, work, monkeypatch, command, site):
    """Without --site, where no profile knows the host, the commands that are there choose; stderr says so."""
    (work / command).write_text("#!/bin/sh\n")
    (work / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(work))
    for words in (("render",), ("submit", "--dry-run")):
        result = cli(*words, "-N", "2", "--gpus-per-node", "4", "--", "true")
        assert result.exit_code == 0, result.stderr
        assert f"hpclaunch: no profile knows this host; {command} is here: using --site {site}, " in result.stderr
        assert f"#{'SBATCH' if site == 'slurm' else 'PBS'} " in result.stdout
    monkeypatch.setenv("PATH", "")
    assert "which site? No profile knows this host" in cli("render", "--", "true").stderr


@pytest.mark.job
def test_without_torch_a_laptop_has_env_and_one_line_for_the_rest(tmp_path, monkeypatch):
    """`run --workload env` and a rehearsal work; what needs torch says in one line what to install."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/*/site-packages")
    (packages / "ours.pth").write_text(str(Path(hpclaunch.__file__).parents[1]))
    for name in ("click", "jinja2", "markupsafe", "yaml", "msgspec"):
        origin = Path(importlib.util.find_spec(name).origin)
        (packages / name).symlink_to(origin.parent)
    monkeypatch.setenv("PATH", f"{tmp_path}/venv/bin:{os.environ['PATH']}")
    rehearsal = ("--site", "gadi", "-A", "ab12", "--workload", "env")
    for words, code, said in (
        (("--workload", "env", "--tasks-per-node", "2"), 0, "all fit together: world size 2"),
        ((*rehearsal, "--launcher", "tasks"), 0, "all fit together: world size 4"),
        ((), 1, "no torch and no pytorch-lightning; use pip install torch pytorch-lightning, or --workload env"),
        (("--workload", "allreduce"), 1, "no torch; use pip install torch, or --workload env"),
        (rehearsal, 1, "no torch; use pip install torch, or --launcher tasks"),
    ):
        command = ["python", "-m", "hpclaunch", "run", "--quiet", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
        assert code == 0 or done.stderr.count("\n") == 1
