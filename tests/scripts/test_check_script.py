"""`hpclaunch check --script`: what a person sees of a script that somebody else wrote, and what they get instead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "corpus"
SITES = {"gadi": "gadi", "jz": "jean-zay", "slurm": "slurm", "pbs": "pbs"}
CORPUS = sorted(SCRIPTS.glob("*.sh"))

OLD = """\
#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=10
#SBATCH --time=30:00:00
#SBATCH --mail-type=END
module purge
module load pytorch-gpu/py3/2.8.0
export WANDB_MODE=offline
LR=0.1
python train.py --lr $LR > log.txt
python evaluate.py
"""


@pytest.fixture
def old(work):
    (work / "old.sh").write_text(OLD.replace("python evaluate.py\n", ""))
    return "old.sh"


def site_of(path: Path) -> str:
    return SITES[path.name.partition("-")[0]]


def test_findings_are_told_like_a_compiler_s(cli, old):
    """Each finding has file and line, what is wrong and what would be right; the exit code is 1."""
    result = cli("check", "--script", old, "--site", "jean-zay")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        "old.sh:5: warning: ntasks: --ntasks=4 without --ntasks-per-node; use --ntasks-per-node=4"
    )
    assert lines[1].startswith(
        "old.sh:7: error: qos: walltime 30:00:00 exceeds qos_gpu-t3's limit of 20:00:00; use --qos=qos_gpu-t4"
    )
    assert lines[2].startswith("old.sh:8: warning: site-directive: #SBATCH --hint=nomultithread is missing")
    assert lines[3].startswith("old.sh:13: error: fan-out: `python train.py --lr` without srun")
    assert all(line.endswith("]") for line in lines)
    assert result.stderr == "hpclaunch: old.sh on jean-zay: 2 errors, 2 warnings\n"


def test_a_good_script_has_exit_code_0(cli):
    """Where nothing refuses, a script can be submitted from another one."""
    result = cli("check", "--script", str(SCRIPTS / "gadi-one-gpu.sh"), "--site", "gadi")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing to say" in result.stderr


def test_the_command_line_wins_over_the_script(cli, old):
    """What is typed counts as it does with sbatch: a script without a walltime is complete with -t."""
    Path(old).write_text(OLD.replace("#SBATCH --time=30:00:00\n", "").replace("python evaluate.py\n", ""))
    words = ("check", "--script", old, "--site", "jean-zay")
    assert "no walltime requested" in cli(*words).stdout
    assert "no walltime requested" not in cli(*words, "-t", "5h", "-A", "xyz@v100").stdout


def test_json_has_it_all(cli, old):
    """--json: the diagnostics with their lines."""
    told = json.loads(cli("check", "--script", old, "--site", "jean-zay", "--json").stdout)
    assert (told["script"], told["site"], told["refused"]) == ("old.sh", "jean-zay", True)
    assert {"line": 5, "check": "ntasks"}.items() <= told["diagnostics"][0].items()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "x.sh: No such file or directory"),
        (b"", "x.sh: no job script: it is empty, binary, or longer than 300 kB"),
        (b"\n \n", "x.sh: no job script: it is empty, binary, or longer than 300 kB"),
        (b"\x7fELF\0\0", "x.sh: no job script: it is empty, binary, or longer than 300 kB"),
        (b"#" * 300_001, "x.sh: no job script: it is empty, binary, or longer than 300 kB"),
        (b"#!/bin/bash\necho\n", "no #PBS and no #SBATCH line"),
        (b"#!/bin/bash\n#PBS -q nowhere\n", "which site is it for? Give --site"),
    ],
)
def test_what_is_no_script_gets_one_message(cli, work, data, message):
    """A file that is missing, empty, binary, huge, or for nobody knows where: one line that says so."""
    if data is not None:
        (work / "x.sh").write_bytes(data)
    result = cli("check", "--script", "x.sh")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_strange_name_is_told(cli, work):
    """A file whose name is no text is checked like another."""
    path = work / "x\udcff.sh"
    path.write_text("#!/bin/bash\n#PBS -q normall\n")
    result = cli("check", "--script", str(path), "--site", "gadi")
    assert result.exit_code == 1
    assert "x\ufffd.sh:2: error: partition: site gadi has no partition" in result.stdout


def test_a_folder_is_no_script(cli, work):
    """A folder gets the operating system's word for it."""
    assert "Is a directory" in cli("check", "--script", str(work), "--site", "gadi").stderr


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("#PBS -q gpuvolta", "gadi"),
        ("#PBS -q normal-exec", "gadi"),
        ("#SBATCH -C a100", "jean-zay"),
        ("#SBATCH -A abc@v100", "jean-zay"),
        ("#SBATCH -p gpu_p2", "jean-zay"),
    ],
)
def test_the_site_is_guessed_where_only_one_fits(cli, work, header, name):
    """A queue, constraint or account that only one known site has tells which site a script is for."""
    (work / "x.sh").write_text(f"#!/bin/bash\n{header}\necho\n")
    assert f"x.sh on {name}:" in cli("check", "--script", "x.sh").stderr


def test_the_wrong_scheduler_is_told(cli, old):
    """A Slurm script on Gadi would ask for nothing: that is said, not silently read."""
    result = cli("check", "--script", old, "--site", "gadi")
    assert result.exit_code == 1
    assert "old.sh:2: error: scheduler: #SBATCH lines, but gadi reads #PBS lines and ignores them" in result.stdout


@pytest.mark.parametrize("words", [["--script", "x.sh", "--", "python"], ["--script", "x.sh", "--module", "m"]])
def test_what_does_not_go_together_is_a_mistake_of_usage(cli, words):
    """A command or modules beside a script: exit code 2."""
    assert cli("check", "--site", "gadi", *words).exit_code == 2


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_scripts_of_real_people(cli, path, request, monkeypatch):
    """Scripts in the ways in which people write them: each finding."""
    monkeypatch.chdir(SCRIPTS)
    name, site_name = path.name, site_of(path)
    checked = cli("check", "--script", name, "--site", site_name)
    assert (checked.exit_code == 1) == (": error: " in checked.stdout)
    text = checked.stdout
    text = re.sub(r"[\w./-]*?([\w-]+\.yaml):\d+", r"\1", text)  # profiles grow
    golden = path.with_suffix(".txt")
    if request.config.getoption("--update-golden"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_corpus_is_large_enough():
    """Forty scripts and more, of all the sites."""
    assert len(CORPUS) >= 40
    assert {site_of(path) for path in CORPUS} == set(SITES.values())


def test_a_site_of_one_s_own_has_the_same_traps(cli, work):
    """A profile that extends Gadi's finds what Gadi's does, in its own file; what it does not confirm only warns."""
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "mine.yaml").write_text(
        "extends: gadi\ntitle: Mine\npartitions:\n  gpuvolta:\n    cpus_per_gpu: 6\n    unconfirmed: [cpus_per_gpu]\n"
    )
    (work / "x.sh").write_text(
        "#!/bin/bash\n#PBS -P ab12\n#PBS -q gpuvolta\n#PBS -l ncpus=12,ngpus=1,mem=9GB,jobfs=9GB,walltime=1:00:00\n"
        "idle /g/data/xy12/x\n"
    )
    result = cli("check", "--script", "x.sh", "--site", "mine")
    assert (
        "x.sh:4: warning: cpus: 12 cores with 1 GPU: gpuvolta requires 6 cores for each GPU; use -l ncpus=6"
        in result.stdout
    )
    assert "mine.yaml:5, not confirmed]" in result.stdout.splitlines()[0]
    assert "x.sh:5: error: storage: a path in gdata/xy12" in result.stdout
    guessed = cli("check", "--script", "x.sh")
    assert guessed.exit_code == 1
    assert "Give --site; gadi or mine would fit" in guessed.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("#!/bin/bash\ncd /tmp\n#PBS -l ncpus=1\n", 3),
        ("#!/bin/bash\n  # indented\n#PBS -l ncpus=1\ncd /tmp\n", None),
        ("#!/bin/bash\ncat >next.sh <<END\n#PBS -l ncpus=1\nEND\n", None),
        ("#!/usr/bin/python3\n#PBS -l ncpus=1\nimport os; print(f'{os.name}(')\n", None),
        ("#!/usr/bin/python3\nimport os\n#PBS -l ncpus=1\n", 3),
        ("#!/bin/bash\nhostname\n", None),
    ],
    ids=["late", "indented comment", "another script's", "python", "late python", "none"],
)
@pytest.mark.parametrize("name", ["gadi", "local"])
def test_submit_looks_for_late_directives_as_check_does(cli, work, text, line, name):
    """`submit --script` refuses a directive behind the first command, and no other: not one that a heredoc writes."""
    (work / "job.sh").write_text(text)
    result = cli("submit", "--site", name, "--dry-run", "--script", "job.sh")
    if line is None:
        assert (result.exit_code, result.stdout, result.stderr) == (0, text, "")
    else:
        told = f"hpclaunch: job.sh:{line}: a directive is ignored after the first command, line 2; "
        assert (result.exit_code, result.stderr) == (1, f"{told}move it up\n")
