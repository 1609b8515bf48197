"""`check --script --as-request`: the printed command asks for the same job, or what it leaves out is named."""

import re
import shlex

import pytest

GADI = "#!/bin/bash\n#PBS -P ab12 -q gpuvolta\n#PBS -l ncpus=12,ngpus=1,mem=90GB,walltime=5:00:00\n#PBS -l wd\n"
NORMAL = "#!/bin/bash\n#PBS -P ab12 -q normal\n#PBS -l ncpus=96,mem=100GB,jobfs=2GB,walltime=5:00:00\n#PBS -l wd\n"
ZAY = "#!/bin/bash\n#SBATCH -A abc@v100 -N1 --ntasks-per-node=1 --gres=gpu:1 -c10 -t 1:00:00 --hint=nomultithread\n"


@pytest.fixture
def ask(cli, work):
    """Return a function that asks for a script's request: its options, what is left out, and the rendered script."""

    def ask(text, site="gadi"):
        (work / "x.sh").write_text(text)
        result = cli("check", "--script", "x.sh", "--site", site, "--as-request")
        words = shlex.split(result.stdout)
        rendered = cli(*words[1:]) if words else None
        assert result.exit_code == (0 if words else 1)
        assert rendered is None or rendered.exit_code == 0, rendered.stderr
        options = words[2 : words.index("--")] if words else []
        pairs = list(zip(options[::2], options[1::2], strict=True))
        return pairs, result.stderr, rendered.stdout if rendered else ""

    return ask


def test_the_job_gets_nothing_of_the_profiles(ask):
    """A script without modules, storage and jobfs gets none of the profile's; the least jobfs is named."""
    pairs, left, script = ask(f"{GADI}python train.py\n")
    assert [value for key, value in pairs if key in ("--module", "--storage")] == ["none", "none"]
    assert "module load" not in script
    assert "dk92" not in script.partition("# ----------")[0].replace("--storage none", "")
    assert "#PBS -l storage" not in script
    assert "#PBS -l jobfs=1GB" in script
    assert "left out: -l jobfs=1GB: the command asks for it, the script for none" in left
    assert "left out: -j oe: the command's job has it, the script's not" in left


def test_the_order_of_the_lines_stays(ask):
    """Modules and a venv that a folder or a search path comes before are lines of setup, in their order."""
    body = (
        "set -e\nmodule load a\nmodule use /g/data/xy11/mods\nmodule load b\ncd $HOME/work\nsource env/bin/activate\n"
    )
    pairs, _, script = ask(f"{GADI}{body}python train.py\n")
    assert ("--module", "a") in pairs
    assert [value for key, value in pairs if key == "--setup"] == [
        "set -e", "module use /g/data/xy11/mods", "module load b", "cd $HOME/work", "source env/bin/activate"
    ]  # fmt: skip
    assert "--venv" not in dict(pairs)
    assert "#PBS -l storage=gdata/xy11\n" in script


@pytest.mark.parametrize("line", ["source /opt/conda/bin/activate my", "source $(conda info --base)/bin/activate"])
def test_what_is_no_venv_is_setup(ask, line):
    """A conda environment that a script activates is no venv."""
    pairs, _, _ = ask(f"{GADI}{line}\npython train.py\n")
    assert ("--setup", line) in pairs


def test_variables_of_directives_and_names_like_secrets(ask):
    """`#PBS -v NAME=VALUE` is a variable of the request; TOKENIZERS_PARALLELISM is no secret."""
    pairs, _, script = ask(f"{GADI}#PBS -v LR=1\nexport TOKENIZERS_PARALLELISM=false\npython train.py\n")
    assert {("--env", "LR=1"), ("--env", "TOKENIZERS_PARALLELISM=false")} <= {*pairs}
    assert "export LR=1\n" in script


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("python train.py >log 2>&1\n", "line 5: output to log"),
        (
            "/opt/mpi/bin/mpirun -np 1 --bind-to none -x OMP_PROC_BIND=true ./a\n",
            "`/opt/mpi/bin/mpirun -np 1 --bind-to none -x OMP_PROC_BIND=true`: --launcher mpirun instead",
        ),
        ("accelerate launch --mixed_precision fp16 a.py\n", "`accelerate launch --mixed_precision fp16`"),
        ("python train.py\ncp a b\n", "`cp a b` only after the command's own end"),
    ],
)
def test_what_is_left_out_is_named(ask, body, left):
    """Redirections, a launcher's path and options, and when the lines after the command run are named."""
    _, said, script = ask(GADI + body)
    assert script
    assert left in said


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            f"{GADI}python a.py\ncat part_* >>all.csv\nfind . -name 'part_*' -delete\n",
            "line 6: `cat part_*`: a request",
        ),
        (f"{GADI}python a.py\nrm -rf parts\n", "`rm -rf parts`: what a request does after its command"),
        (f"{GADI}python a.py; rm -rf parts\n", "`rm -rf parts`: what a request does after its command"),
        (f"{GADI}echo 'lr = 1' >settings\npython a.py\n", "line 5: `echo 'lr = 1'`: a request cannot hold"),
        (f"{GADI}trap 'touch x' USR1\npython a.py\n", "`trap 'touch x' USR1`: a request cannot hold"),
        (f"{GADI}./a <input\n", "reads a file"),
        (f"{GADI}LR=$RATE python a.py\n", "$RATE in the command has a variable"),
        (f"{NORMAL}python a.py\n", "the script starts it once, a request 2 times"),
        (GADI.replace("-q gpuvolta", "") + "python a.py\n", "no queue requested, so gadi chooses one"),
    ],
)
def test_what_a_request_cannot_hold(ask, script, why):
    """What would be lost, done twice, or done after a failure: no command, and the reason."""
    pairs, said, _ = ask(script)
    assert not pairs
    assert why in said


@pytest.mark.parametrize(
    ("mail", "site", "directives"),
    [
        (f"{GADI}#PBS -M me@b.org -m ea\n", "jean-zay", ["--mail-user=me@b.org", "--mail-type=END,FAIL"]),
        (f"{ZAY}#SBATCH --mail-user me@b.org --mail-type=fail,Begin\n", "gadi", ["-M me@b.org", "-m abe"]),
        (f"{ZAY}#SBATCH --mail-user=me@b.org --mail-type=END\n", "gadi", ["-M me@b.org", "-m e"]),
        (f"{ZAY}#SBATCH --mail-user=me@b.org --mail-type=BEGIN\n", "gadi", ["-M me@b.org", "-m b"]),
        (f"{GADI}#PBS -M me@b.org,you@c.org -m ab\n", "gadi", ["-M me@b.org,you@c.org", "-m ab"]),
    ],
)
def test_mail_of_one_scheduler_is_the_others(ask, mail, site, directives):
    """Mail that both schedulers have is in either's directives; other mail stays as the script has it."""
    _, left, script = ask(f"{mail}python train.py\n", site)
    assert re.findall(r"^#\w+ (--mail.*|-[mM] .*)", script, re.MULTILINE) == directives
    assert "mail" not in left


def test_totals_that_do_not_divide_are_named(ask):
    """Sizes of a request are for a node: what they come to where the script's total is another is named."""
    _, left, script = ask(NORMAL.replace("jobfs=2GB", "jobfs=3GB") + "mpirun ./a\n")
    assert "#PBS -l jobfs=4GB" in script
    assert "line 3: -l jobfs=3GB: the command asks for -l jobfs=4GB" in left


@pytest.mark.parametrize(
    ("partition", "constraint", "meant"), [("gpu_p13", "v100-32g", "v100-32g"), ("gpu_p2", "v100", "gpu_p2")]
)
def test_a_partition_with_a_constraint(ask, partition, constraint, meant):
    """A constraint that refines a partition is the request's partition; one that says nothing more is named."""
    pairs, left, _ = ask(f"{ZAY}#SBATCH -p {partition} -C {constraint}\nsrun python a.py\n", "jean-zay")
    assert ("--partition", meant) in pairs
    assert (f"--constraint={constraint}: the command's own" in left) is (meant == partition)


def test_what_slurm_goes_by(ask):
    """Of an option given twice the last is carried; --export=NONE and cores lost by rounding are named."""
    text = (
        ZAY.replace("gpu:1", "gpu:4") + "#SBATCH -o a.out --export=NONE\n#SBATCH -o b.out\nset -e\nsrun python a.py\n"
    )
    pairs, left, _ = ask(text, "jean-zay")
    assert [value for key, value in pairs if key == "--directive"] == ["--output=b.out"]
    assert ("--setup", "set -e") in pairs
    assert "--export=NONE: ranks need" in left
    assert "line 2: -c 10: the command asks for --cpus-per-task=8" in left


def test_storage_none(cli):
    """`--storage none` leaves out the profile's file systems and module paths, and keeps what is named and used."""
    words = ("render", "--site", "gadi", "-A", "ab12", "--storage", "none", "--storage", "gdata/xy11")
    script = cli(*words, "--", "python", "/g/data/zz99/train.py").stdout
    assert "#PBS -l storage=gdata/xy11+gdata/zz99\n" in script
    assert "module use" not in script
    assert "module load" in script
