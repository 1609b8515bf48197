"""`hpclaunch check --script`: what a person sees of a script that somebody else wrote, and what they get instead."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from conftest import call

from hpclaunch.profile import search
from hpclaunch.scripts.examine import examine
from hpclaunch.scripts.rewrite import rewrite

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
    assert lines[0].startswith("old.sh:5: error: ntasks: --ntasks 4 alone: write --ntasks-per-node=4")
    assert lines[1].startswith("old.sh:7: error: default-qos: 30:00:00 asked, qos_gpu-t3 allows 20:00:00")
    assert "write --qos=qos_gpu-t4" in lines[1]
    assert lines[2].startswith("old.sh:8: warning: site-directive: add #SBATCH --hint=nomultithread")
    assert lines[3].startswith("old.sh:13: error: fan-out: `python train.py --lr` without srun")
    assert all(line.endswith("]") for line in lines)
    assert result.stderr == "hpclaunch: old.sh on jean-zay: 3 errors, 1 warning\n"


def test_a_good_script_has_exit_code_0(cli):
    """Where nothing refuses, a script can be submitted from another one."""
    result = cli("check", "--script", str(SCRIPTS / "gadi-one-gpu.sh"), "--site", "gadi")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing to say" in result.stderr


def test_fix_prints_the_script_anew(cli, old):
    """--fix: the new script on stdout, all talk on stderr, and each line that is not in it named."""
    result = cli("check", "--script", old, "--site", "jean-zay", "--fix")
    assert result.exit_code == 0
    new = result.stdout
    for line in (
        "#SBATCH --account=abc@v100",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --qos=qos_gpu-t4",
        "#SBATCH --time=30:00:00",
        "#SBATCH --hint=nomultithread",
        "#SBATCH --mail-type=END",
        "module load pytorch-gpu/py3/2.8.0 || exit 1",
        "export WANDB_MODE=offline",
        "command=(python train.py --lr 0.1)",
    ):
        assert f"\n{line}\n" in new
    assert "old.sh:5: mended: ntasks:" in result.stderr
    assert "old.sh:13: not carried over: where the output goes" in result.stderr
    assert subprocess.run(["bash", "-n"], input=new, text=True, check=False).returncode == 0


def test_what_cannot_be_mended_is_said_and_nothing_is_printed(cli, work):
    """Where hpclaunch cannot know what is meant there is no script, and the reason has its line."""
    (work / "two.sh").write_text(OLD.replace("python", "srun python"))
    result = cli("check", "--script", "two.sh", "--site", "jean-zay", "--fix")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "two.sh:14: error: fix: lines 13 and 14 all start something: make a script of each" in result.stderr


def test_the_command_line_wins_over_the_script(cli, old):
    """What is typed counts as it does with sbatch: a script without a walltime is complete with -t."""
    Path(old).write_text(OLD.replace("#SBATCH --time=30:00:00\n", "").replace("python evaluate.py\n", ""))
    assert "no-walltime" in cli("check", "--script", old, "--site", "jean-zay").stdout
    result = cli("check", "--script", old, "--site", "jean-zay", "-t", "5h", "-A", "xyz@v100", "--fix")
    assert result.exit_code == 0
    assert "#SBATCH --time=05:00:00" in result.stdout
    assert "#SBATCH --account=xyz@v100" in result.stdout


def test_json_has_it_all(cli, old):
    """--json: the findings with their lines, what is not carried over, the new script."""
    told = json.loads(cli("check", "--script", old, "--site", "jean-zay", "--fix", "--json").stdout)
    assert (told["script"], told["site"], told["refused"]) == ("old.sh", "jean-zay", False)
    assert {"line": 5, "check": "ntasks"}.items() <= told["findings"][0].items()
    assert told["fixed"].startswith("#!/bin/bash\n")
    assert told["not_carried"][-1]["line"] == 13
    told = json.loads(cli("check", "--script", old, "--site", "jean-zay", "--json").stdout)
    assert told["refused"] is True
    assert "fixed" not in told


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "an empty file"),
        (b"\n \n", "an empty file"),
        (b"\x7fELF\0\0", "a binary file"),
        (b"#" * 300_001, "more than 300 kB"),
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
    path.write_text("#!/bin/bash\n#PBS -q normal\n")
    result = cli("check", "--script", str(path), "--site", "gadi")
    assert result.exit_code == 1
    assert "x\ufffd.sh:2: error: no-walltime" in result.stdout


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
    assert "old.sh:2: error: scheduler: #SBATCH lines: gadi reads #PBS and ignores them" in result.stdout


@pytest.mark.parametrize(
    "words", [["--fix"], ["--script", "x.sh", "--", "python"], ["--script", "x.sh", "--module", "m"]]
)
def test_what_does_not_go_together_is_a_mistake_of_usage(cli, words):
    """--fix without a script, a command or modules beside one: exit code 2."""
    assert cli("check", "--site", "gadi", *words).exit_code == 2


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_scripts_of_real_people(cli, path, request, monkeypatch):
    """Scripts in the ways in which people write them: each finding, and what the new script is made from."""
    monkeypatch.chdir(SCRIPTS)
    name, site_name = path.name, site_of(path)
    checked = cli("check", "--script", name, "--site", site_name)
    fixed = cli("check", "--script", name, "--site", site_name, "--fix")
    assert (checked.exit_code == 1) == (": error: " in checked.stdout)
    told = [line for line in fixed.stderr.splitlines() if ": not carried over: " in line or ": error: fix: " in line]
    made = [line for line in fixed.stdout.splitlines() if line.startswith("#   hpclaunch render")]
    assert len(made) == (fixed.exit_code == 0)
    text = "\n".join([checked.stdout.rstrip(), "", *told, *made, ""])
    text = re.sub(r"[\w./-]*?([\w-]+\.yaml):\d+", r"\1", text)  # profiles grow
    golden = path.with_suffix(".txt")
    if request.config.getoption("--update-golden"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_new_script_is_readable_and_complete(cli, path):
    """A new script passes bash -n, keeps its directives before the first command, and made again is the same."""
    result = cli("check", "--script", str(path), "--site", site_of(path), "--fix")
    if result.exit_code:
        assert result.stdout == ""
        assert "hpclaunch: no new script" in result.stderr
        return
    lines = result.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    body = "\n".join(lines[first:])
    assert not re.search(r"^#(PBS|SBATCH)", body, re.MULTILINE)
    assert subprocess.run(["bash", "-n"], input=result.stdout, text=True, check=False).returncode == 0
    again = shlex.split(next(line for line in lines if line.startswith("#   hpclaunch render"))[4:])
    assert cli(*again[1:]).stdout == result.stdout


def test_the_corpus_is_large_enough():
    """Forty scripts and more, of all the sites."""
    assert len(CORPUS) >= 40
    assert {site_of(path) for path in CORPUS} == set(SITES.values())


@pytest.mark.slow
def test_a_new_script_runs_the_old_one_s_command(work):
    """A script with a loop over nodes, mended, starts the same program on each node, after the same preparation."""
    (work / "train.py").write_text(
        "import os, sys\nprint(os.environ['RANK'], os.environ['WHAT'], sys.argv[1:], os.getcwd())\n"
    )
    (work / "sub").mkdir()
    (work / "old.sh").write_text(
        "#!/bin/bash\n#PBS -P ab12\n#PBS -q gpuvolta\n#PBS -l ncpus=96,ngpus=8,mem=760GB,jobfs=800GB,walltime=1:00:00\n"
        "#PBS -l wd\nLR=0.5\nexport WHAT='a b'\ncd sub\nNODES=$(sort -u $PBS_NODEFILE | wc -l)\n"
        'mpirun -np 8 python ../train.py --lr $LR --job "$PBS_JOBID" --nodes $NODES\nwait\n'
    )
    script = call("check", "--script", "old.sh", "--site", "gadi", "--fix")
    again = shlex.split(next(line for line in script.splitlines() if line.startswith("#   hpclaunch render"))[4:])
    options = [word if word != "mpirun" else "tasks" for word in again[2:]]
    call("run", "--quiet", *options)
    logs = sorted((work / "hpclaunch-runs").glob("*/rank-*.log"))
    assert len(logs) == 8
    for number, log in enumerate(logs):
        rank, rest = log.read_text().strip().split(" ", 1)
        assert int(rank) == number
        assert re.fullmatch(r"a b \['--lr', '0.5', '--job', '\d+.*', '--nodes', '2'\] .*/sub", rest)


def entries(body: str) -> tuple[list[str], dict[str, str], list[str]]:
    text = f"#!/bin/bash\n#SBATCH -A abc@v100 --nodes=1 -n1 --gres=gpu:1 -c10 -t 1:00:00 --hint=nomultithread\n{body}"
    made = rewrite(examine(text, search.load("jean-zay")), {})
    assert made.request is not None, made.problems
    return made.request.setup, made.request.env, made.request.command


@pytest.mark.parametrize(
    ("body", "setup", "env", "command"),
    [
        ("A=1\nsrun python x.py $A", [], {}, ["python", "x.py", "1"]),
        ("A='1 2'\nsrun python x.py $A", ["A='1 2'", "export A"], {}, ["bash", "-c", "exec python x.py $A"]),
        ("srun python x.py $(date +%s)", ["export ARGUMENT_1=$(date +%s)"], {},
         ["bash", "-c", "exec python x.py ${ARGUMENT_1}"]),
        ("srun python x.py '$A'", [], {}, ["python", "x.py", "$A"]),
        ("export A=1\nsrun python x.py", [], {"A": "1"}, ["python", "x.py"]),
        ("export A=$HOME/x\nsrun python x.py", ["export A=$HOME/x"], {}, ["python", "x.py"]),
        ("A=1 B=2 srun python x.py", [], {"A": "1", "B": "2"}, ["python", "x.py"]),
        ("mkdir -p out && cd out\nsrun python x.py", ["mkdir -p out && cd out"], {}, ["python", "x.py"]),
        ("cd x && srun python x.py", ["cd x || exit 1"], {}, ["python", "x.py"]),
        ("cd x 2>/dev/null && srun python x.py", ["cd x 2>/dev/null || exit 1"], {}, ["python", "x.py"]),
        ("! [ -f x ] && srun python x.py", ["! [ -f x ] || exit 1"], {}, ["python", "x.py"]),
        ("[[ -f x && -d y ]] && srun python x.py", ["[[ -f x && -d y ]] || exit 1"], {}, ["python", "x.py"]),
        ("srun python x.py || exit 1", [], {}, ["python", "x.py"]),
        ("python server.py &\npython x.py", ["python server.py &"], {}, ["python", "x.py"]),
        ("python a.py &\npython b.py &\nwait\npython x.py &\nwait", ["python a.py &", "python b.py &"], {},
         ["python", "x.py"]),
        ("if [ -e x ]; then\n  rm x\nfi\nsrun python x.py",
         ["if [ -e x ]; then", "  rm x", "fi"], {}, ["python", "x.py"]),
        ("cat >f <<E\n a\n\nb\nE\nsrun python x.py", ["cat >f <<E", " a", " ", "b", "E"], {}, ["python", "x.py"]),
        ("set -e; srun bash -c 'cd x && python x.py'", ["cd x"], {}, ["python", "x.py"]),
        ("nodes=$(hostname)\nname=x\nsrun python $name.py", [], {}, ["python", "x.py"]),
        ("conda activate a\nsrun python x.py", ["conda activate a"], {}, ["python", "x.py"]),
        ("D=out\nmkdir $D\nsrun python x.py", ["D=out", "mkdir $D"], {}, ["python", "x.py"]),
        ("CMD='python x.py --a 1'\nsrun $CMD --b", [], {}, ["python", "x.py", "--a", "1", "--b"]),
        ("srun python x.py $1 `date` \"$RANDOM\" '$1'",
         ["export ARGUMENT_1=$1", "export ARGUMENT_2=`date`", "export ARGUMENT_3=$RANDOM"], {},
         ["bash", "-c", "exec python x.py ${ARGUMENT_1} ${ARGUMENT_2} \"${ARGUMENT_3}\" '$1'"]),
        ("[ -e y ] && A=1\nsrun python x.py $A", ["[ -e y ] && A=1", "export A"], {},
         ["bash", "-c", "exec python x.py $A"]),
        ("X=(--a 'b c')\nsrun python x.py \"${X[@]}\"", [], {}, ["python", "x.py", "--a", "b c"]),
        ("X=(1 2)\nsrun python x.py ${X[$I]}", ["X=(1 2)", "export ARGUMENT_1=${X[$I]}"], {},
         ["bash", "-c", "exec python x.py ${ARGUMENT_1}"]),
        ("A='--nproc_per_node=1 --nnodes=1'\nsrun torchrun $A x.py", [], {}, ["python", "x.py"]),
        ("A=(\n  --nnodes 1 # one\n)\nsrun torchrun \"${A[@]}\" -m m --b", [], {}, ["python", "-m", "m", "--b"]),
        ("srun python x.py ~/data", [], {}, ["bash", "-c", "exec python x.py ~/data"]),
    ],
)  # fmt: skip
def test_a_body_becomes_a_request(body, setup, env, command):
    """Settings, conditions, folders and variables keep their meaning; what the shell expands is still expanded."""
    assert entries(body + "\n") == (setup, env, command)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("srun torchrun $ARGS train.py", "what torchrun is given in $ARGS is not known"),
        ("python - <<E\nprint(1)\nE", "ranks have no stdin"),
        ("for lr in 1 2; do srun python x.py $lr; done", "inside of a `for`"),
        ("main() {\n  srun python x.py\n}\nmain", "inside of a function"),
        ("if true; then srun python x.py; fi", "inside of an `if`"),
        ('[ -e x ] && X=(1)\nsrun python x.py "${Y[@]}"', "an array that is not known here"),
        ("srun accelerate launch --config_file x.yaml x.py", "--config_file has no counterpart"),
        ("echo hello", "no command was found"),
        ("[ -f done ] || srun python x.py", "`[ -f done ] ||` before the command: it decides whether it runs"),
        ("python x.py || python y.py", "`python x.py ||` before the command"),
        ("cat in.txt | srun python x.py", "`cat in.txt |` before the command: it feeds it"),
        ("cd x && yes | srun python x.py", "`yes |` before the command"),
        ("for h in a b; do [ -f done ] || ssh $h python x.py & done", "`[ -f done ] ||` before the command"),
        ("srun python x.py | grep loss", "`grep loss` reads what the command prints"),
        ("srun python x.py | tee log | mail -s x", "`mail -s x` reads what the command prints"),
        ("srun python x.py || cp -r saved out", "`cp -r saved out` runs where the command fails"),
        ("! srun python x.py", "a `!` before the command"),
        ("python x.py &\npython y.py &\nwait", "lines 3 and 4 all start something"),
        ("python x.py | tee log &\n(cd b; python y.py) &", "lines 3 and 4 all start something"),
        ("CUDA_VISIBLE_DEVICES=0 python x.py &\nCUDA_VISIBLE_DEVICES=1 python y.py\nwait", "lines 3 and 4 all start"),
        ('srun python x.py "$@"', "the script's own arguments"),
        ("IFS=,\nsrun python x.py", "the variable IFS is the job script's own"),
        ('command=$(cat cmd.txt)\npython train.py "$command"', "the variable command is the job script's own"),
        ("source env.sh\nsrun python x.py $log", "the variable log is the job script's own"),
        ("export log=1\nsrun python x.py", "the variable log is the job script's own"),
        ("name=$(date +%s)\nmkdir $name\nsrun python x.py", "the variable name is the job script's own"),
        ("for x in 1 2; do pids=$x; done\nsrun python x.py", "the variable pids is the job script's own"),
    ],
)
def test_what_cannot_be_rewritten_says_why(body, why):
    """Where the meaning of a script would change there is no new one, and the reason is told with its line."""
    text = f"#!/bin/bash\n#SBATCH -A abc@v100 --nodes=1 -n1 --gres=gpu:1 -c10 -t 1:00:00 --hint=nomultithread\n{body}\n"
    problems = rewrite(examine(text, search.load("jean-zay")), {}).problems
    assert any(why in message for _, message in problems), problems


@pytest.mark.parametrize(
    ("srun", "ranks"),
    [
        ("srun", 4),
        ("srun -n8", 4),
        ("srun -N2 --ntasks-per-node=4", 4),
        ('srun -n "$SLURM_NTASKS" -N $SLURM_JOB_NUM_NODES', 4),
        ("srun -n 16", 8),
        ("srun --ntasks=$SLURM_NNODES torchrun --nproc_per_node=4", 4),
        ("N=8\nsrun -n $N", 4),
        ("srun -N1 -n1", None),
        ("srun -n1", None),
        ("srun --nodes=1", None),
        ("srun --ntasks-per-node=2", None),
        ("srun -n $SLURM_NNODES", None),
        ("N=1\nsrun -n $N", None),
        ("srun -N1 -n1 torchrun --nproc_per_node=4", None),
    ],
)
def test_srun_s_own_sizes_count(srun, ranks):
    """What srun itself is told decides how many ranks there are; where that is less than the job, no script is made."""
    header = "-A abc@v100 -N2 --ntasks-per-node=4 --gres=gpu:4 -c10 -t 1:00:00 --hint=nomultithread"
    text = f"#!/bin/bash\n#SBATCH {header}\n{srun} python x.py\n"
    if "torchrun" in srun:
        text = text.replace(" python", "").replace("per-node=4", "per-node=1").replace("-c10", "-c40")
    made = rewrite(examine(text, search.load("jean-zay")), {})
    if ranks is None:
        assert any("the job's 2 nodes" in message for _, message in made.problems), made
    else:
        assert made.request is not None, made.problems
        assert (made.request.nodes, made.request.tasks_per_node) == (2, ranks)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("cd /data && python x.py; cp out /x", ["`cp out /x`"]),
        ("python x.py; cp a b && rm a 2>/dev/null; date", ["`cp a b && rm a 2>/dev/null`", "`date`"]),
        ("python x.py\n  cp out  /x  # keep", ["`cp out /x # keep`"]),
    ],
)
def test_what_is_not_carried_is_named_and_no_more(body, told):
    """A note names the words that are lost, not those beside them on the line that were carried."""
    text = f"#!/bin/bash\n#SBATCH -A abc@v100 --nodes=1 -n1 --gres=gpu:1 -c10 -t 1:00:00 --hint=nomultithread\n{body}\n"
    made = rewrite(examine(text, search.load("jean-zay")), {})
    assert made.request is not None, made.problems
    assert [why.partition(":")[0] for _, why in made.notes] == told


def test_a_site_s_own_commands_are_its_profile_s(tmp_path):
    """A command for quotas is never the job's program, and a site's own launcher is taken for what it stands for."""
    head = "#!/bin/bash\n#SBATCH -A abc@v100 --nodes=1 -n1 --gres=gpu:1 -c10 -t 1:00:00 --hint=nomultithread\n"
    text = head + "srun my_run --num_processes 1 x.py\nmy_quota\nidrquota\nidracct\n"
    (tmp_path / "mine.yaml").write_text(
        "extends: jean-zay\ntitle: Mine\nown_commands: {my_quota: , my_run: accelerate launch}\n"
    )
    made = rewrite(examine(text, search.load(str(tmp_path / "mine.yaml"))), {})
    assert made.request is not None, made.problems
    assert made.request.command == ["python", "x.py"]
    made = rewrite(examine(head + "idr_quota_user\n", search.load("jean-zay")), {})
    assert any("no command was found" in why for _, why in made.problems)


@pytest.mark.parametrize("sizes", ["-N1 -n1 -w $n", "-n1 -w $n", "--nodes=1 --ntasks=1 --nodelist=$n"])
def test_a_loop_over_nodes_that_starts_one_task_on_each_is_the_whole_job(sizes):
    """`srun -N1 -n1 -w $node` for each node, in the background, starts the command everywhere."""
    header = "-A abc@v100 -N2 --ntasks-per-node=1 --gres=gpu:4 -c40 -t 1:00:00 --hint=nomultithread"
    loop = f"for n in a b; do srun {sizes} torchrun --nproc_per_node=4 x.py & done; wait"
    made = rewrite(examine(f"#!/bin/bash\n#SBATCH {header}\n{loop}\n", search.load("jean-zay")), {})
    assert made.problems == []
    assert made.request is not None
    assert (made.request.nodes, made.request.tasks_per_node) == (2, 4)


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
    assert "x.sh:4: warning: totals: ncpus=12 with ngpus=1: each GPU comes with 6 cpus, write ncpus=6" in result.stdout
    assert "mine.yaml:5]" in result.stdout.splitlines()[0]
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
    result = cli("submit", "--site", name, "-A", "ab12", "--dry-run", "--script", "job.sh")
    if line is None:
        assert (result.exit_code, result.stdout, result.stderr) == (0, text, "")
    else:
        told = f"hpclaunch: job.sh:{line}: a directive that is ignored: it stands after the first command, line 2; "
        assert (result.exit_code, result.stderr) == (1, f"{told}move it up\n")
