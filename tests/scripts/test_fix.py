"""`check --script --fix`, `--diff` and `--as-request`: a script fixed in place, or as a command of hpclaunch."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from hpclaunch.profile import search
from hpclaunch.scripts.examine import examine
from hpclaunch.scripts.fix import fixed

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.sh"))
SITES = {"gadi": "gadi", "jz": "jean-zay", "slurm": "slurm", "pbs": "pbs"}
BODY = "# keep  this\npython train.py\n"
HEAD = "#!/bin/bash\n#PBS -P ab12\n"


def fix(name: str, text: str) -> str:
    return fixed(text, lambda text: examine(text, search.load(name)))[0]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gadi", "#PBS -q gpuvolta-exec\n#PBS -l ncpus=48,ngpus=4", "#PBS -q gpuvolta\n#PBS -l ncpus=48,ngpus=4"),
        ("gadi", "#PBS -q gpuvolta\n#PBS -l ncpus=24,ngpus=4", "#PBS -q gpuvolta\n#PBS -l ncpus=48,ngpus=4"),
        ("gadi", "#PBS -q gpuvolta # V100\n#PBS -l ncpus=48,ngpus=4",
         "# V100\n#PBS -q gpuvolta\n#PBS -l ncpus=48,ngpus=4"),
        ("gadi", "#PBS -I\n#PBS -q gpuvolta\n#PBS -l ncpus=48,ngpus=4", "#PBS -q gpuvolta\n#PBS -l ncpus=48,ngpus=4"),
        ("gadi", "#PBS -q gpuvolta\n#PBS -l select=2:ncpus=48:ngpus=4:mem=190gb",
         "#PBS -q gpuvolta\n#PBS -l ncpus=96,ngpus=8,mem=380GB"),
        ("gadi", "#PBS -q normal\n#PBS -l ncpus=80", "#PBS -q normal\n#PBS -l ncpus=96"),
        ("jean-zay", "#SBATCH --partition=v100 --gres=gpu:1 -c 10 --hint=nomultithread",
         "#SBATCH --constraint=v100 --gres=gpu:1 -c 10 --hint=nomultithread"),
        ("jean-zay", "#SBATCH -C gpu_p13 --gres=gpu:1 -c 10 --hint=nomultithread",
         "#SBATCH --partition=gpu_p13 --gres=gpu:1 -c 10 --hint=nomultithread"),
        ("jean-zay", "#SBATCH -N1 -n 4 --gres=gpu:4 -c 10 --hint=nomultithread",
         "#SBATCH -N1 --ntasks-per-node=4 --gres=gpu:4 -c 10 --hint=nomultithread"),
        ("jean-zay", "#SBATCH --gres=gpu:1 -c 16", "#SBATCH --gres=gpu:1 -c 16"),  # 8 cores
        ("jean-zay", "#SBATCH --gres=gpu:1 -n 8 -c 1 --hint=nomultithread",
         "#SBATCH --gres=gpu:1 --ntasks=1 --cpus-per-task=8 --hint=nomultithread"),
        ("jean-zay", "#SBATCH --gres=gpu:1 -c 10", "#SBATCH --gres=gpu:1 -c 10\n#SBATCH --hint=nomultithread"),
    ],
)  # fmt: skip
def test_a_directive_is_fixed_where_it_stands(name, old, new):
    """What is certain changes in its directive; comments, order, blanks and commands stay."""
    head = HEAD if name == "gadi" else "#!/bin/bash\n#SBATCH -A abc@v100 -t 1:00:00\n"
    assert fix(name, f"{head}{old}\n{BODY}") == f"{head}{new}\n{BODY}"


def test_line_ends_of_windows_are_fixed():
    """A script with CRLF gets the line ends that qsub reads, and nothing else changes."""
    text = HEAD + "#PBS -q normal\n#PBS -l ncpus=4,walltime=1:00:00\n" + BODY
    assert fix("gadi", text.replace("\n", "\r\n")) == text


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_is_said_to_be_fixed_is_gone(path):
    """Checked again, a fixed script has none of the diagnostics that were fixed, and only directives changed."""
    profile, text = search.load(SITES[path.name.partition("-")[0]]), path.read_bytes().decode()
    new, done, _ = fixed(text, lambda text: examine(text, profile))
    assert not {one.message for one in done} & {one.message for one in examine(new, profile).diagnostics}
    if "\r" not in text:
        assert [line for line in new.split("\n") if not line.startswith("#")] == [
            line for line in text.split("\n") if not line.startswith("#")
        ]


def test_a_fix_and_its_diff_are_printed(cli, work):
    """--fix prints the script on stdout and what is left on stderr, --diff a unified diff, --json both."""
    (work / "x.sh").write_text(HEAD + "#PBS -q gpuvolta\n#PBS -l ncpus=24,ngpus=4\n" + BODY)
    words = ("check", "--script", "x.sh", "--site", "gadi")
    result = cli(*words, "--fix")
    assert "#PBS -l ncpus=48,ngpus=4\n" in result.stdout
    assert "x.sh:4: fixed: cpus: 24 cores with 4 GPUs" in result.stderr
    assert "x.sh (fixed):4: warning: walltime: no walltime requested" in result.stderr
    assert result.exit_code == 1
    assert "-#PBS -l ncpus=24,ngpus=4\n+#PBS -l ncpus=48,ngpus=4\n" in cli(*words, "--diff").stdout
    answer = json.loads(cli(*words, "--fix", "--json").stdout)
    assert [one["check"] for one in answer["fixed"]] == ["cpus"]
    assert answer["text"] == result.stdout


def test_each_diagnostic_that_a_fix_ends_is_named(cli, work):
    """Of two file systems that one fix adds, two lines say that they were fixed."""
    body = "#PBS -q normal\n#PBS -l ncpus=4,mem=16GB,walltime=1:00:00\n#PBS -l wd\ncp /g/data/xy11/a /g/data/zz99/b\n"
    (work / "x.sh").write_text(HEAD + body + BODY)
    result = cli("check", "--script", "x.sh", "--site", "gadi", "--fix")
    assert "storage=gdata/xy11+gdata/zz99" in result.stdout
    assert result.stderr.count("fixed: storage: a path in gdata/") == 2


OLD = """\
#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=24,ngpus=2,mem=180GB,jobfs=100GB,walltime=5:00:00
#PBS -l wd
module load pytorch/1.0
source ~/env/bin/activate
export LR=0.1
mkdir -p out
python train.py --lr 1
cp -r out /scratch/ab12
"""


def test_a_script_becomes_a_command(cli, work):
    """--as-request prints the render command with modules, venv, variables, setup and teardown."""
    (work / "old.sh").write_text(OLD)
    result = cli("check", "--script", "old.sh", "--site", "gadi", "--as-request")
    assert result.exit_code == 0
    words = shlex.split(result.stdout)
    for option, value in {
        "--partition": "gpuvolta", "--gpus-per-node": "2", "--walltime": "05:00:00", "--module": "pytorch/1.0",
        "--venv": "~/env", "--env": "LR=0.1", "--setup": "mkdir -p out", "--teardown": "cp -r out /scratch/ab12",
    }.items():  # fmt: skip
        assert words[words.index(option) + 1] == value
    assert words[words.index("--") + 1 :] == ["python", "train.py", "--lr", "1"]
    assert cli(*words[1:]).exit_code == 0


def test_a_script_moves_to_another_site(cli, work):
    """For another site the command keeps size and time, and what has no counterpart is named."""
    (work / "old.sh").write_text(OLD)
    result = cli("check", "--script", "old.sh", "--site", "jean-zay", "--as-request")
    assert result.exit_code == 0
    words = shlex.split(result.stdout)
    assert words[:4] == ["hpclaunch", "render", "--site", "jean-zay"]
    assert "--partition" not in words
    assert "partition gpuvolta: gadi's own; choose jean-zay's" in result.stderr
    assert "`module load pytorch/1.0`: modules differ from site to site" in result.stderr


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("srun python a.py\nsrun python b.py\n", "2 main commands"),
        ("for i in 1 2; do srun python a.py; done\n", "in a block (loop)"),
        ("srun python a.py $1\n", "has a variable"),
        ("echo hello\n", "0 main commands"),
        ("if [ -e x ]; then rm x; fi\nsrun python a.py\n", "a block, a function or a redirection"),
    ],
)
def test_what_is_no_request_says_why(cli, work, body, why):
    """Several commands, loops and variables: no command is printed, and the reason is."""
    (work / "x.sh").write_text("#!/bin/bash\n#SBATCH -A abc@v100 -N1 -n1 --gres=gpu:1 -c10 -t 1:00:00\n" + body)
    result = cli("check", "--script", "x.sh", "--site", "jean-zay", "--as-request")
    assert (result.exit_code, result.stdout) == (1, "")
    assert why in result.stderr
