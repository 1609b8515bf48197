"""What is wrong with the commands of a script, and what only looks so."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpclaunch.job.checks.downloads import downloads
from hpclaunch.profile import search
from hpclaunch.scripts.examine import examine

LEGAL = sorted((Path(__file__).parent / "legal").glob("*.sh"))
SITES = {"gadi": "gadi", "jz": "jean-zay"}
GADI = """\
#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,mem=90GB,walltime=1:00:00,storage=gdata/ab12,jobfs=10GB
#PBS -l wd
"""
JZ = """\
#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
"""


def found(text: str) -> list[tuple[str, int]]:
    """Return (check, line below the directives) for all that is said of a script."""
    name = "gadi" if "#PBS" in text else "jean-zay"
    first = sum(line.startswith("#") for line in text.splitlines()[:9])
    return [(one.check, one.line - first) for one in examine(text, search.load(name)).diagnostics]


@pytest.mark.parametrize("path", LEGAL, ids=lambda path: path.stem)
def test_a_legal_script_is_left_alone(path):
    """Functions, case, getopts, usage texts, heredocs for other jobs, arrays, loops: nothing is said of any."""
    site = search.load(SITES[path.name.partition("-")[0]])
    assert examine(path.read_text(), site).diagnostics == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nextflow run nf-core/rnaseq -profile x", ["nextflow run"]),
        ("nextflow run https://github.com/a/b", ["nextflow run"]),
        ("nextflow run main.nf; nextflow run ./a/b; nextflow run a/b -offline", []),
        ("srun -n 1 bash -c 'cd x && hf download gpt2'", ["hf download"]),
        ("x=$(curl -s https://a/b | head)", ["curl"]),
        ("time srun --ntasks=1 wget https://a/b", ["wget"]),
        ("git -c x=y submodule update --init; git status", []),
        ("git submodule update --init", ["git submodule update"]),
        ("conda env create -f x.yml", ["conda env create"]),
        ("conda env list; conda create --offline -n x; conda list", []),
        ("python -m pip install -r requirements.txt", ["pip install"]),
        ("pip install --no-index x; pip install ./x.whl /y; pip --version", []),
        ("singularity exec docker://ubuntu ls", ["singularity exec"]),
        ("singularity exec x.sif python a.py --url https://a/b; apptainer build x.sif x.def", []),
        ("A=1 env B=2 timeout 5 aria2c x", ["aria2c"]),
        ("srun python build.py --backend kaggle; echo wget", []),
        ("scp a b; scp a host:b", ["scp"]),
        ("curl http://localhost:80/ || curl http://127.0.0.1/", []),
        ("echo 'it", []),
    ],
)
def test_downloads_are_known_by_their_words(text, what):
    """A line of setup and a script's command are the same download; what stays on the machine is none."""
    assert list(downloads(text)) == what
    if text.count("'") != 1:
        checks = found(GADI + text + "\npython x.py\n")
        assert checks.count(("download", 1)) == len(what)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("f() {\n  wget https://a/b\n}\nf", 2),
        ("f() {\n  wget https://a/b\n}", None),
        ("bash <<EOF\nwget https://a/b\nEOF", 2),
        ("cat <<EOF >x.sh\nwget https://a/b\nEOF", None),
        ("echo wget https://a/b", None),
        ("ssh login 'cd /x; wget https://a/b'", None),
        ("export NXF_OFFLINE=true\nnextflow run a/b", None),
    ],
)
def test_a_download_is_where_the_job_runs_it(text, line):
    """A function that is called, a heredoc for bash: yes; a text, another machine, another job: no."""
    assert found(GADI + text + "\npython x.py\n") == ([("download", line)] if line else [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("python x.py --data /g/data/wb00/x", 1),
        ("D=/g/data\nP=wb00\npython x.py --data $D/$P/x", 3),
        ("python x.py > /g/data/wb00/x.log", 1),
        ("for f in /g/data/wb00/*; do\n  python $f\ndone", 1),
        ("source /g/data/wb00/env.sh\npython x.py", 1),
        ("bash -c 'cd /g/data/wb00; python x.py'", 1),
        ("cp /scratch/$PROJECT/x /scratch/${PROJECT}/$USER/y\npython /g/data/$PROJECT/x.py", None),
        ("usage() {\n  echo /g/data/wb00/x\n}\nusage\npython x.py", None),
        ("cat > x.pbs <<EOF\ncd /g/data/wb00\nEOF\npython x.py", None),
        ("HELP='needs\n/g/data/wb00'\npython x.py", None),
        ("# python /g/data/wb00/x\npython x.py", None),
    ],
)
def test_a_path_needs_its_file_system(text, line):
    """A path that a command takes must be named with storage=; one that is shown, or is the project's own, not."""
    assert found(GADI + text + "\n") == ([("storage", line)] if line else [])


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("srun python x.py &", ("wait", 1)),
        ("(cd x; srun python x.py) &\necho started", ("wait", 1)),
        ("srun python x.py &\nwait", None),
        ("srun python x.py &\nP=$!\nwhile kill -0 $P; do sleep 9; done", None),
        ("python server.py &\nsrun python x.py", None),
        ("finish() { wait; }\ntrap finish EXIT\nsrun python x.py &", None),
        ("srun bash -c 'python x.py & wait'", None),
        ("watch_gpu &\nsrun python x.py\nkill %1", None),
        ("nvidia-smi -l 60 > gpu.log &\nsrun python x.py", None),
    ],
)
def test_a_start_in_the_background_is_waited_for(text, check):
    """A job whose script ends before its program does is said; one that waits in whatever way is not."""
    assert found(JZ + text + "\n") == ([check] if check else [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pbsdsh -n 0 -- ./run.sh\nwait", True),
        ("pbsdsh -n 0 python train.py", True),
        ("pbsdsh -n 0 -- bash -l -c 'python train.py'", True),
        ("pbsdsh -n 0 -- bash -l -c 'cd $PBS_O_WORKDIR; python train.py'", False),
        ("pbsdsh -n 0 -- $PBS_O_WORKDIR/run.sh x.py", False),
        ("D=$(pwd)\npbsdsh -n 0 -- bash $D/run.sh", False),
        ("pbsdsh -n 0 -- hostname", False),
    ],
)
def test_pbsdsh_starts_in_the_home_folder(text, said):
    """A relative path is not found there, whatever folder the script is in."""
    assert ("folder" in {check for check, _ in found(GADI + text + "\n")}) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cp x $TMPDIR", True),
        ("python x.py --cache ${PBS_JOBFS}/c", True),
        ("D=$TMPDIR/x\npython x.py", True),
        ("echo $PBS_JOBFS\npython x.py", False),
        ("export TMPDIR=/scratch/ab12/tmp\npython x.py", False),
        ("python x.py", False),
    ],
)
def test_jobfs_is_asked_for_by_those_who_use_it(text, said):
    """Only a script that uses the node's own disk is told to ask for it."""
    assert ("jobfs" in {check for check, _ in found(GADI.replace(",jobfs=10GB", "") + text + "\n")}) == said


@pytest.mark.parametrize(
    ("signal", "body", "said"),
    [
        ("USR1@90", "python x.py", True),
        ("USR1@90", "srun python x.py", False),
        ("B:USR1@90", "trap 'kill $P' USR1\npython x.py & P=$!\nwait", False),
        ("B:USR1@90", "python x.py", True),
    ],
)
def test_a_signal_has_someone_to_hear_it(signal, body, said):
    """--signal goes to what srun starts, with B: to the script: without either it is lost."""
    text = JZ.replace("node=4", "node=1").replace("gpu:4", "gpu:1") + f"#SBATCH --signal={signal}\n{body}\n"
    assert ("signal" in {check for check, _ in found(text)}) == said


def test_a_script_that_is_unread_in_part_is_said_to_be():
    """What the library cannot read is a warning with its line, and the rest is checked all the same."""
    report = examine(JZ + "srun python train.py --devices 8\nfor i in {1..3}; { ls; }\n", search.load("jean-zay"))
    assert [(one.check, one.refuses) for one in report.diagnostics] == [("trainer", True), ("shell", False)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python x.py --data /path/to/data", True),
        ("OUT=<your_folder>\npython x.py", True),
        ("cd <your project>\npython x.py", True),
        ("python <your_script>.py", True),
        ("python x.py <in.txt >out.txt", False),
        ("sed -i 's/<your_name>/me/' x.cfg\npython x.py", False),
        ("USAGE='run with\n <your_project> <path>'\npython x.py", False),
        ("echo 'usage: <your_project>'\npython x.py", False),
        ("case $1 in\n  -p) P=$2 ;;\n  *) echo '-p <your_project>' ;;\nesac\npython x.py", False),
        ("cat > next.pbs <<EOF\n#PBS -P <your_project>\nEOF\npython x.py", False),
    ],
)
def test_a_placeholder_is_where_a_value_belongs(text, said):
    """What an example left to be filled in is said of commands, not of texts that are shown or edited."""
    assert ("placeholders" in {check for check, _ in found(GADI + text + "\n")}) == said
