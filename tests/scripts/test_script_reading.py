"""Directives and values, read as qsub and sbatch read them; shell, read as bash reads it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hpclaunch.job.directives import read as directives
from hpclaunch.profile import search
from hpclaunch.schedulers import values
from hpclaunch.scripts import own, shell
from hpclaunch.scripts.examine import examine
from hpclaunch.scripts.launch import understand


def options(text: str, scheduler: str = "slurm") -> list[tuple[str, str]]:
    found = directives.read(text.splitlines(), scheduler, set())
    return [(option.name, option.value) for option in found.options]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--nodes=2 --time 1:00:00", [("nodes", "2"), ("time", "1:00:00")]),
        ("-N2 -t 1:00:00 -A abc@v100", [("nodes", "2"), ("time", "1:00:00"), ("account", "abc@v100")]),
        ("--ntasks-per=4", [("ntasks-per-node", "4")]),
        ("--ntasks-per-n=4", [("ntasks-per-node", "4")]),
        ("--job-name='my job' # a comment", [("job-name", "my job")]),
        ('--comment "a # b"', [("comment", "a # b")]),
        ("--exclusive --nodes=1", [("exclusive", ""), ("nodes", "1")]),
        ("--exclusive=user", [("exclusive", "user")]),
        ("-sN 3", [("oversubscribe", ""), ("nodes", "3")]),
        ("--workdir=x", [("chdir", "x")]),
        ("--new-thing 5 -N 2", [("?", "5"), ("nodes", "2")]),
        ("# --nodes=2", []),
        ("", []),
    ],
)
def test_sbatch_options_in_all_their_shapes(line, expected):
    """Long and short options, with = or a blank or nothing between, quotes, comments, unknown ones."""
    if line == "--ntasks-per=4":  # not one option's beginning alone: sbatch refuses it, and so it is unknown
        expected = [("?", "4")]
    assert options(f"#!/bin/bash\n#SBATCH {line}\n") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-l ncpus=12,ngpus=1", [("l.ncpus", "12"), ("l.ngpus", "1")]),
        ("-lwalltime=1:00:00", [("l.walltime", "1:00:00")]),
        ("-l ncpus=4 -l mem=4GB -N x", [("l.ncpus", "4"), ("l.mem", "4GB"), ("N", "x")]),
        ("-l select=2:ncpus=48:ngpus=4:mem=190gb", [("l.select", "2:ncpus=48:ngpus=4:mem=190gb")]),
        ("-l nodes=2:ppn=48", [("l.nodes", "2:ppn=48")]),
        ("-l wd", [("l.wd", "")]),
        ("-joe", [("j", "oe")]),
        ("-v A=1,B='x y'", [("v", "A=1,B=x y")]),
        ("-W umask=027", [("W", "umask=027")]),
        ("-VN name", [("V", ""), ("N", "name")]),
    ],
)
def test_qsub_options_in_all_their_shapes(line, expected):
    """Lists, options without blanks, several in a line, quotes."""
    assert options(f"#!/bin/bash\n#PBS {line}\n", "pbs") == expected


def test_directives_end_at_the_first_command():
    """Only what the scheduler reads counts: not what stands below, in another file, or behind a blank."""
    text = "#!/bin/bash\n\n# note\n#SBATCH -N 2\n #SBATCH -n 3\n##SBATCH -n 4\necho\n#SBATCH -n 5\n"
    assert options(text) == [("nodes", "2")]


@pytest.mark.parametrize(
    ("text", "of_pbs", "of_slurm"),
    [
        ("48:00", 2880, 2880),
        ("90", 90, 5400),
        ("1:00:00", 3600, 3600),
        ("2-0", None, 172800),
        ("1-12:00", None, 129600),
        ("1-12:00:30", None, 129630),
        ("1:2:3:4", None, None),
        ("1.5", 1, None),
        ("abc", None, None),
        ("", None, None),
        ("-1", None, None),
        ("٣", None, None),
    ],
)
def test_walltimes_as_each_scheduler_reads_them(text, of_pbs, of_slurm):
    """A bare number is seconds to PBS and minutes to Slurm, two parts are minutes to both, days are Slurm's."""
    for read, seconds in ((values.pbs_seconds, of_pbs), (values.slurm_seconds, of_slurm)):
        if seconds is None:
            with pytest.raises(ValueError, match="no walltime"):
                read(text)
        else:
            assert read(text) == seconds


@pytest.mark.parametrize(
    ("text", "of_pbs", "of_slurm"),
    [
        ("190GB", 190, 190),
        ("190gb", 190, 190),
        ("760G", 760, 760),
        ("4096M", 4, 4),
        ("4096mb", 4, 4),
        ("2tb", 2048, 2048),
        ("4096", None, 4),
        ("1.5GB", None, None),
        ("4GiB", None, None),
        ("x", None, None),
    ],
)
def test_sizes_as_each_scheduler_reads_them(text, of_pbs, of_slurm):
    """Units in any case; a bare number is MB to Slurm, and bytes to PBS, which nobody means."""
    if of_pbs is None:
        if text != "4096":
            with pytest.raises(ValueError, match="no size"):
                values.pbs_gb(text)
    else:
        assert values.whole_gb(values.pbs_gb(text)) == of_pbs
    if of_slurm is not None:
        assert values.whole_gb(values.slurm_gb(text)) == of_slurm


def request(name: str, header: str, body: str = "srun python train.py\n"):
    prefix = "#PBS" if name == "gadi" else "#SBATCH"
    lines = "".join(f"{prefix} {line}\n" for line in header.splitlines())
    return examine(f"#!/bin/bash\n{lines}{body}", search.load(name)).request


@pytest.mark.parametrize(
    ("name", "header", "body", "expected"),
    [
        (
            "gadi",
            "-q gpuvolta\n-l ncpus=96,ngpus=8,mem=760GB,jobfs=800GB",
            "mpirun -np 8 python x.py\n",
            {"nodes": 2, "gpus_per_node": 4, "tasks_per_node": 4, "mem_gb": 380, "jobfs_gb": 400, "launcher": "mpirun"},
        ),
        (
            "gadi",
            "-q dgxa100\n-l ncpus=128,ngpus=8",
            "torchrun --nproc_per_node=8 x.py\n",
            {"nodes": 1, "gpus_per_node": 8, "tasks_per_node": 8, "launcher": "torchrun"},
        ),
        (
            "gadi",
            "-q gpuvolta\n-l ncpus=48,ngpus=4",
            "python x.py\n",
            {"gpus_per_node": 4, "tasks_per_node": 4, "launcher": "lightning"},
        ),
        ("gadi", "-q normal\n-l ncpus=8", "./a.out\n", {"nodes": 1, "tasks_per_node": 1, "cpus_per_task": 8}),
        ("gadi", "-q gpuvolta\n-l select=2:ncpus=48:ngpus=4", "python x.py\n", {"nodes": 2, "gpus_per_node": 4}),
        ("gadi", "-q normal\n-l nodes=2:ppn=48", "mpirun ./a.out\n", {"nodes": 2, "tasks_per_node": 48}),
        (
            "jean-zay",
            "-A abc@v100 -N2 --ntasks-per-node=4 --gres=gpu:4 -c 20 -t 2-0",
            "srun python x.py\n",
            {"nodes": 2, "tasks_per_node": 4, "cpus_per_task": 10, "walltime": "48:00:00", "partition": "v100"},
        ),
        (
            "jean-zay",
            "-A abc@h100 -C h100 -N 2 --ntasks-per-node=1 --gpus-per-node=4 -c 192",
            "srun torchrun --nproc_per_node 4 x.py\n",
            {"tasks_per_node": 4, "cpus_per_task": 24, "launcher": "torchrun", "partition": "h100"},
        ),
        ("jean-zay", "-A abc@cpu -n 40", "srun ./a.out\n", {"partition": "cpu_p1", "nodes": 1, "tasks_per_node": 40}),
        ("jean-zay", "-A abc@cpu -n 80", "srun ./a.out\n", {"nodes": 2, "tasks_per_node": 40}),
        ("jean-zay", "-A abc@v100 --gpus=8 -N 2", "srun ./a.out\n", {"gpus_per_node": 4}),
        ("jean-zay", "-A abc@v100 --gpus-per-task=1 -N 1 -n 4", "srun ./a.out\n", {"gpus_per_node": 4}),
        (
            "jean-zay",
            "-A abc@v100 --gres=gpu:4 --mem-per-cpu=2G -c 10 --hint=nomultithread",
            "srun ./a.out\n",
            {"mem_gb": 20},
        ),
        ("jean-zay", "-A abc@v100 --gres=gpu:1 --export=ALL,LR=0.1", "srun ./a.out\n", {"env": {"LR": "0.1"}}),
    ],
)
def test_a_script_s_size_in_a_request_s_words(name, header, body, expected):
    """Totals, chunks, tasks and GPUs in all their ways come to nodes and what each of them has."""
    made = request(name, header, body)
    assert {key: getattr(made, key) for key in expected} == expected


def commands(text: str) -> list[list[str]]:
    return [list(command.words) for command in shell.read(text).commands if command.words]


def test_shell_is_read_as_bash_reads_it():
    """Quotes over several lines, heredocs, loops, arrays and joined commands keep their lines and words."""
    body = shell.read(
        "a 'b\nc' \\\n d\ncat <<EOF >f\n#SBATCH -N 3\nit's\nEOF\nfor i in 1 2; do\n  x $i &\ndone; wait\n"
        "n=( $(ls) )\nf() {\n  y\n}\nz && w | v && f\n[[ $q && $r ]] || ((i > 3))\n"
    )
    assert body.error is None
    assert body.heredocs == {5, 6, 7}
    assert [(one.line, one.name, sorted(one.inside)) for one in body.commands if one.words] == [
        (1, "a", []), (4, "cat", []), (8, "for", []), (9, "x", ["background", "loop"]), (10, "wait", []),
        (11, "ls", ["substitution"]), (13, "y", ["function"]), (15, "z", ["list"]), (15, "w", ["list", "pipe"]),
        (15, "v", ["list", "pipe"]), (15, "f", ["list"]),
    ]  # fmt: skip
    assert body.commands[0].words == ["a", "b\nc", "d"]


def test_a_case_s_labels_and_tests_are_no_commands():
    """What stands before a `)` of a case is no command, nor is what `[` compares; the commands behind are."""
    text = 'case "$1" in\n  srun|-h) usage ;;\n  *.py) python "$1" ;;\nesac\n[ -d srun ] && ls\n'
    assert commands(text) == [["usage"], ["python", "$1"], ["ls"]]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("bash -c 'wget x'", ["wget", "x"]),
        ('srun -n 4 bash -lc "cd x; wget x"', ["wget", "x"]),
        ("bash -x -c 'wget x' name", ["wget", "x"]),
        ("eval 'wget x'", ["wget", "x"]),
        ('ssh "$node" "cd /x && wget x"', ["wget", "x"]),
        ("bash <<EOF\nwget x\nEOF", ["wget", "x"]),
        ("pbsdsh -n 1 -- bash -s <<'EOF'\nwget x\nEOF", ["wget", "x"]),
        ("bash -c \"bash -c 'wget x'\"", ["wget", "x"]),
        ("cat > job.sh <<EOF\nwget x\nEOF", None),
        ("sbatch <<EOF\nwget x\nEOF", None),
        ("echo 'bash -c wget x'", None),
        ("python <<EOF\nwget(x)\nEOF", None),
        ("bash job.sh -c 'wget x'", None),
    ],
)
def test_texts_for_another_shell_are_read(text, inner):
    """`bash -c`, eval, ssh and a heredoc for bash are commands of the job; texts for other files and jobs are not."""
    assert (["wget", "x"] in commands(text)) == (inner is not None)


@pytest.mark.parametrize(
    ("text", "line"),
    [("echo 'x", 2), ('echo "x', 2), ("x=$(ls", 2), ("if true; then\nx", 2), ("for i in 1; do x", 2), ("f() {", 2),
     ("case x in\na) y ;;", 2), ("while a; do\nif b; then\nc\nfi\nd", 2), ("if a; then\nfor i in 1; do\nfi", 4)],
)  # fmt: skip
def test_what_bash_cannot_read_is_named(text, line):
    """A quote or a block that is never closed is found where it begins, another error where bash finds it."""
    error = shell.read(f"\n{text}\n").error
    assert error is not None
    assert error[0] == line


@pytest.mark.parametrize(
    "text",
    ["for i in {1..3}; { echo; }", "case x in a) b ;& c) d ;;& *) e ;; esac", "exec {out}<>f {err}<>g",
     "ls !(x|y)", "echo 'if you do this, (then'", "if x; then # do (\n y\nfi", "echo \"$(echo \"it's\")\""],
)  # fmt: skip
def test_what_the_reader_does_not_know_is_no_error(text):
    """Legal bash that the library cannot read is at most said to be unread; never is a script refused for it."""
    assert shell.read(f"#!/bin/bash\n{text}\nsrun python x.py\n").error is None


@pytest.mark.parametrize(
    ("word", "text", "expands"),
    [
        ("x", "x", ""),
        ("'a b'", "a b", ""),
        ('"a b"c', "a bc", ""),
        (r"a\ b", "a b", ""),
        (r'"a\$b"', "a$b", ""),
        ("'$x'", "$x", ""),
        ("$x", "$x", "x"),
        ('"${x%.*}/ $y"', "${x%.*}/ $y", "x y"),
        ("`ls`", "`ls`", "$("),
        ("$x/$y/z", "$x/${y}/z", "x y"),
        ("*.py", "*.py", "*"),
        ("~/x", "~/x", "~"),
        ("{a,b}", "{a,b}", "*"),
        ("a{}", "a{}", ""),
        ("'*'", "*", ""),
    ],
)
def test_words_know_what_the_shell_expands_in_them(word, text, expands):
    """A word is its text without the quotes; what the shell would replace in it is known."""
    (command,) = [one for one in shell.read(f"echo {word}\n").commands if one.name == "echo"]
    assert command.words[1] == text
    assert command.words[1].expands == set(expands.split())


def test_a_function_that_nothing_calls_is_not_run():
    """What only a function does that is never called is no part of the job."""
    assert commands("f() { wget x; }\ng() { ls; }\ng\n") == [["ls"], ["g"]]
    assert ["wget", "x"] in commands("f() { wget x; }\ntrap f EXIT\n")


@pytest.mark.parametrize(
    ("text", "layers", "words"),
    [
        ("srun -n8 --gpus 4 python x.py", ["srun"], ["python", "x.py"]),
        ("srun bash -c 'A=1 python x.py'", ["srun"], ["python", "x.py"]),
        ("CMD='torchrun --standalone x.py'\nsrun $CMD --lr 1", ["srun", "torchrun"], ["python", "x.py", "--lr", "1"]),
        ('A=(-N 2\n --export=ALL)\nsrun "${A[@]}" ./x', ["srun"], ["./x"]),
        ("mpiexec -n 8 --ppn 4 --depth 16 --cpu-bind depth --env A=b ./x -n 3", ["mpirun"], ["./x", "-n", "3"]),
        ("mpiexec -n 8 -env A b -ppn 4 ./x", ["mpirun"], ["./x"]),
        ("mpirun -np 4 -x LD_LIBRARY_PATH --mca btl ^tcp ./x -n 3", ["mpirun"], ["./x", "-n", "3"]),
        ("python -u -m torch.distributed.run --nnodes=2 -m pkg.train", ["torchrun"], ["python", "-m", "pkg.train"]),
        ("accelerate launch --multi_gpu --num_processes 4 x.py", ["accelerate"], ["python", "x.py"]),
        ("deepspeed --num_gpus 4 x.py --deepspeed", ["deepspeed"], ["python", "x.py", "--deepspeed"]),
        ("time conda run -n env python x.py", [], ["python", "x.py"]),
        ("timeout -k 9 3h nohup ./x", [], ["./x"]),
        ("LR=0.1\npython x.py --lr $LR --out $OUT", [], ["python", "x.py", "--lr", "0.1", "--out", "$OUT"]),
        ('for h in a b; do ssh $h "cd /x; torchrun y.py" & done', ["ssh", "torchrun"], ["python", "y.py"]),
        ("run() { srun python x.py; }\nrun", ["srun"], ["python", "x.py"]),
        ("python -c 'import torch'\npython x.py\npython -m pip list", [], ["python", "x.py"]),
    ],
)
def test_a_program_is_found_behind_what_starts_it(text, layers, words):
    """srun, mpirun, torchrun, bash -c, variables and functions lead to the same program."""
    (start,) = understand(shell.read(text), search.load("slurm").site).main
    assert ([layer.kind for layer in start.layers], start.words) == (layers, words)


@pytest.mark.parametrize("name", ["gadi", "jean-zay"])
def test_without_the_library_the_directives_are_checked(cli, work, monkeypatch, name):
    """One line says what was left out and how to get it; what the directives ask for is checked all the same."""
    monkeypatch.setattr(shell, "find_spec", lambda _name: None)
    prefix = {"gadi": "#PBS -N a/b", "jean-zay": "#SBATCH -J bash"}[name]
    (work / "x.sh").write_text(f"#!/bin/bash\n{prefix}\ncat <<E\n#PBS -q x\n#SBATCH -n1\nE\nwget x\nif\n")
    result = cli("check", "--script", "x.sh", "--site", name)
    assert "x.sh:2: error: job-name" in result.stdout
    assert "x.sh:9: error: shell: syntax error: unexpected end of file" in result.stdout
    assert not re.search("download|late|command", result.stdout)
    assert [line for line in result.stderr.splitlines() if "pip install 'hpclaunch[scripts]'" in line] != []
    assert result.stderr.count("\n") == 2


@pytest.mark.parametrize(
    ("name", "directive", "expected"),
    [
        ("pbs", "#PBS -N mine -q big -l select=2:ncpus=8:mpiprocs=4", ("mine", "big", 2, 4, "")),
        ("pbs", "#PBS -l select=3:ncpus=8", ("my_job.sh", "", 3, 1, "my_job.sh")),
        ("pbs", "#PBS -l nodes=2:ppn=6", ("my_job.sh", "", 2, 6, "my_job.sh")),
        ("gadi", "#PBS -q gpuvolta -l ncpus=96,ngpus=8", ("my_job.sh", "gpuvolta", 2, 1, "my_job.sh")),
        ("jean-zay", "#SBATCH -J a -p gpu_p13 -n 8 --ntasks-per-node=4", ("a", "gpu_p13", 2, 4, "")),
        ("jean-zay", "#PBS -N other -l select=4", ("my_job.sh", "", 1, 1, "my_job.sh")),
        ("local", "", ("my_job.sh", "", 1, 1, "my_job.sh")),
    ],
)
def test_a_script_of_ones_own_is_planned_as_it_asks(work, name, directive, expected):
    """Name, partition, nodes and tasks on each are the directives'; the last is the name to submit it with."""
    (work / "my job.sh").write_text(f"#!/bin/bash\n{directive}\ntrue\n")
    _, plan, given = own.read(work / "my job.sh", search.load(name))
    assert (plan.job_name, plan.partition_name, plan.nodes, plan.tasks_per_node, given) == expected


def test_a_job_is_rendered_without_the_reader_of_bash():
    """The library that reads scripts costs `render` nothing: it is loaded only where a script is read."""
    words = ["render", "--site", "gadi", "-A", "ab12", "--setup", "pip install x && ls", "--", "python", "x.py"]
    code = f"import sys\nfrom hpclaunch.cli import main\nmain({words!r}, standalone_mode=False)\n"
    code += "assert not {'tree_sitter', 'tree_sitter_bash', 'hpclaunch.scripts.shell'} & sys.modules.keys()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "pip install x && ls" in run.stdout
