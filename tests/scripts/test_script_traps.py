"""What is wrong with a script that somebody else wrote: each trap found, and silent one step beside it."""

from __future__ import annotations

import re

import pytest

from hpclaunch.job.consider import consider
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.scripts.checks import SCRIPT_CHECKS
from hpclaunch.scripts.examine import Report, examine

GADI = """\
#!/bin/bash
#PBS -N train
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=12,ngpus=1,mem=90GB,jobfs=100GB
#PBS -l walltime=10:00:00
#PBS -l storage=gdata/ab12
#PBS -l wd
module load pytorch
python train.py
"""
GADI_2 = GADI.replace("ncpus=12,ngpus=1,mem=90GB,jobfs=100GB", "ncpus=96,ngpus=8,mem=760GB,jobfs=800GB").replace(
    "python train.py", "mpirun -np 8 python train.py"
)
JZ = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=abc@v100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
module purge
module load pytorch-gpu/py3/2.8.0
srun python train.py
"""
A100 = (
    JZ.replace("abc@v100", "abc@a100")
    .replace("#SBATCH --nodes=1", "#SBATCH -C a100\n#SBATCH --nodes=1")
    .replace("=4\n#SBATCH --gres=gpu:4", "=8\n#SBATCH --gres=gpu:8")
    .replace("cpus-per-task=10", "cpus-per-task=8")
    .replace("module load", "module load arch/a100\nmodule load")
)
JOBFS = GADI.replace("python train.py", "cp x $TMPDIR\npython train.py")
CORES = GADI.replace("gpuvolta", "normal").replace(
    "ncpus=12,ngpus=1,mem=90GB,jobfs=100GB", "ncpus=72,mem=380GB,jobfs=800GB"
)
TORCHRUN = JZ.replace("ntasks-per-node=4", "ntasks-per-node=1").replace("cpus-per-task=10", "cpus-per-task=40")
TWO = JZ.replace("nodes=1", "nodes=2")
ALONE = TORCHRUN.replace("nodes=1", "nodes=2").replace(
    "python train.py", "torchrun --nproc_per_node=4 --nnodes=2 --rdzv-endpoint=$h:29500 train.py"
)
CPU = TWO.replace("@v100", "@cpu").replace("#SBATCH --gres=gpu:4\n", "")
PREPOST = "#!/bin/bash\n#SBATCH --partition=prepost --hint=nomultithread\n#SBATCH --time=1:00:00\nmake\n"
ONE = JZ.replace("=4\n#SBATCH --gres=gpu:4", "=1\n#SBATCH --gres=gpu:1")


def missing(folders: set[str]) -> dict[str, bool]:
    return dict.fromkeys(folders, True)


def look(name: str, text: str, folders: bool = True) -> Report:
    return examine(text, search.load(name), missing=(lambda _folders: {}) if folders else missing)


def found(name: str, text: str, check: str, folders: bool = True) -> list[tuple[int, bool]]:
    return [(one.line, one.refuses) for one in look(name, text, folders).diagnostics if one.check == check]


# check, site, the script in which it is right, what is replaced there, by what, in which line that is found, refused?
CASES = [
    ("shell", "jean-zay", JZ, "srun python", 'echo "now\nsrun python', 12, True),
    ("shell", "jean-zay", JZ, "srun python", "if true; then\nsrun python", 12, True),
    ("shell", "gadi", GADI, "train.py", "train.py \\ \n  --lr 0.1", 10, False),
    ("crlf", "jean-zay", JZ, "\n", "\r\n", 1, True),
    ("scheduler", "gadi", GADI, "#PBS", "#SBATCH", 2, True),
    ("scheduler", "gadi", GADI, "#PBS", "# no", 0, False),
    ("late", "gadi", GADI, "python train.py", "#PBS -l wd\npython train.py", 10, False),
    ("almost", "jean-zay", JZ, "module purge", " #SBATCH --exclusive\nmodule purge", 10, False),
    ("almost", "jean-zay", JZ, "module purge", "#SBTACH --exclusive\nmodule purge", 10, False),
    ("almost", "jean-zay", JZ, "module purge", "# SBATCH --exclusive\nmodule purge", 10, False),
    ("almost", "gadi", GADI, "-l wd", "-l wd\n#PBE -l place=excl", 9, False),
    ("directives", "gadi", GADI, "-l wd", "-l wd  # here", 8, True),
    ("directives", "gadi", GADI, "-l wd", "-l wd -W depend=afterok:12345.gadi-pbs", 8, False),
    ("directives", "jean-zay", JZ, "--nodes=1", "--nodes=1 --dependency=afterok:12345", 4, False),
    ("directives", "gadi", GADI, "-N train", "-N my train", 2, True),
    ("directives", "gadi", GADI, "-N train", "--name train", 2, True),
    ("directives", "gadi", GADI, "#PBS -N", "#PBSD -N", 2, True),
    ("directives", "gadi", GADI, "-N train", "-t 1-10", 2, True),
    ("directives", "jean-zay", JZ, "--nodes=1", "--nodes = 1", 4, True),
    ("directives", "jean-zay", JZ, "--nodes=1", "--nodes=1 --frobnicate=3", 4, False),
    ("directives", "gadi", GADI, "-N train", "-N run_$USER", 2, True),
    ("directives", "gadi", GADI, "-N train", "-o $PBS_JOBID.log", 2, False),
    ("directives", "jean-zay", JZ, "--job-name=train", "--output=$WORK/%j.out", 2, True),
    ("placeholders", "gadi", GADI, "-P ab12", "-P <project>", 3, True),
    ("placeholders", "gadi", GADI, "-P ab12", "-P your_project", 3, True),
    ("placeholders", "jean-zay", JZ, "abc@v100", "changeme@gpu", 3, True),
    ("placeholders", "jean-zay", JZ, "abc@v100", "ABC@v100", 3, True),
    ("placeholders", "jean-zay", JZ.replace("abc@v100", "young@v100"), "young@v100", "project_id@v100", 3, True),
    ("placeholders", "jean-zay", JZ, "--nodes=1", "--nodes=1 --mail-user=you@example.com", 4, False),
    ("repeated", "gadi", GADI, "-l wd", "-l wd -q normal", 8, False),
    ("repeated", "jean-zay", JZ, "--nodes=1", "--nodes=1\n#SBATCH -N 2", 5, False),
    ("directives", "gadi", GADI, "10:00:00", "00:10:00:00", 6, True),
    ("directives", "gadi", GADI, "jobfs=100GB", "jobfs=100GB,", 5, True),
    ("directives", "gadi", GADI, "mem=90GB", "mem=90", 5, True),
    ("directives", "gadi", GADI, "mem=90GB", "mem=90GiB", 5, True),
    ("directives", "jean-zay", JZ, "10:00:00", "1:2:3:4", 9, True),
    ("directives", "jean-zay", JZ, "--gres=gpu:4", "--gres=gpu:4:", 6, True),
    ("directives", "jean-zay", JZ, "--nodes=1", "--nodes=", 4, True),
    ("directives", "gadi", GADI, "-l wd", "-l wd\n#PBS -I", 9, False),
    ("directives", "gadi", GADI, "-l wd", "-l wd\n#PBS -V", 9, False),
    ("directives", "gadi", GADI, "-l wd", "-l wd -v GPUS=0,1", 8, True),
    ("log-folder", "jean-zay", JZ, "--job-name=train", "--output=logs/%j/x.out", 2, True),
    ("walltime", "jean-zay", JZ, "=10:00:00", "=10:00", 9, False),
    ("walltime", "gadi", GADI, "=10:00:00", "=48:00", 6, False),
    ("walltime", "gadi", GADI, "#PBS -l walltime=10:00:00\n", "", 7, False),
    ("walltime", "jean-zay", PREPOST, "#SBATCH --time=1:00:00\n", "", 2, False),
    ("walltime", "jean-zay", JZ, "#SBATCH --time=10:00:00\n", "", 8, True),
    ("partition", "gadi", GADI, "#PBS -q gpuvolta\n", "", 7, False),
    ("account", "gadi", GADI, "#PBS -P ab12\n", "", 7, False),
    ("account", "gadi", GADI.replace("gpuvolta", "gpursaa"), "#PBS -P ab12\n", "", 7, False),
    ("partition", "jean-zay", A100, "-C a100", "-C a100 -p gpu_p13", 4, True),
    ("account", "jean-zay", JZ, "#SBATCH --account=abc@v100\n", "", 8, False),
    ("refused-directives", "gadi", GADI, "ncpus=12,ngpus=1,mem=90GB,jobfs=100GB",
     "select=1:ncpus=12:ngpus=1:mem=90GB", 5, True),
    ("refused-directives", "gadi", GADI, "ncpus=12,ngpus=1,mem=90GB", "nodes=1:ppn=12:gpus=1,mem=90GB", 5, True),
    ("cpus", "gadi", GADI, "ncpus=12", "ncpus=16", 5, True),
    ("whole-nodes", "gadi", GADI_2, "ncpus=96,ngpus=8", "ncpus=72,ngpus=6", 5, True),
    ("whole-nodes", "jean-zay", CPU, "cpus-per-task=10", "cpus-per-task=1", 4, False),
    ("whole-nodes", "jean-zay", ONE, "--nodes=1", "--nodes=1 --exclusive", 4, False),
    ("memory", "gadi", GADI_2, "mem=760GB", "mem=190GB", 5, False),
    ("partition", "gadi", GADI, "gpuvolta", "gpuvolta-exec", 4, True),
    ("account", "jean-zay", A100, "#SBATCH -C a100\n", "", 3, True),
    ("qos", "jean-zay", JZ, "10:00:00", "20:00:01", 9, True),
    ("qos", "jean-zay", PREPOST, "--time=1:00:00", "--time=1:00:00 --qos=qos_gpu-t3", 3, False),
    ("refused-directives", "jean-zay", JZ.replace("@v100", "@cpu").replace("#SBATCH --gres=gpu:4\n", ""),
     "--nodes=1", "--nodes=1 --gres=gpu:0", 4, True),
    ("ntasks", "jean-zay", JZ, "--ntasks-per-node=4", "--ntasks=4", 5, True),
    ("layout", "jean-zay", TORCHRUN.replace("srun ", "srun torchrun --nproc_per_node 4 "),
     "ntasks-per-node=1", "ntasks-per-node=4", 5, True),
    ("tasks", "jean-zay", ONE.replace("srun ", ""), "ntasks-per-node=1", "ntasks=8", 5, False),
    ("tasks", "jean-zay", JZ, "ntasks-per-node=4", "ntasks-per-node=2", 5, False),
    ("site-directive", "jean-zay", JZ, "#SBATCH --hint=nomultithread\n", "", 8, False),
    ("jobfs", "gadi", JOBFS, ",jobfs=100GB", "", 10, False),
    ("cpus", "jean-zay", JZ, "#SBATCH --cpus-per-task=10\n", "", 8, False),
    ("signal", "jean-zay", JZ, "--nodes=1", "--nodes=1 --signal=B:USR1@90", 4, False),
    ("fan-out", "jean-zay", JZ, "srun python", "python", 12, True),
    ("fan-out", "gadi", GADI_2, "mpirun -np 8 python", "python", 10, True),
    ("fan-out", "jean-zay", TWO, "srun python train.py", "bash run.sh", 12, False),
    ("early-variable", "jean-zay", TWO, "srun python train.py", 'srun bash -c "python $SLURM_PROCID"', 12, True),
    ("early-variable", "jean-zay", TWO, "srun python", "export NODE=$SLURM_NODEID\nsrun python", 12, True),
    ("fixed-port", "jean-zay", JZ.replace("=4\n#SBATCH --gres=gpu:4", "=2\n#SBATCH --gres=gpu:2"),
     "srun", "export MASTER_PORT=12345\nsrun", 12, True),
    ("fixed-port", "gadi", GADI, "python", "accelerate launch --main_process_port 29501", 10, True),
    ("fixed-port", "gadi", GADI, "python", "mpirun -x MASTER_PORT=12355 python", 10, True),
    ("pbsdsh", "gadi", GADI_2, "mpirun -np 8 python", "pbsdsh python", 10, True),
    ("pbsdsh", "gadi", GADI_2, "mpirun -np 8 python", "pbsdsh -u python", 10, True),
    ("pbsdsh", "gadi", GADI_2, "mpirun -np 8 python train.py",
     "for i in $(seq 0 1); do pbsdsh -n $i -- python train.py & done; wait", 10, True),
    ("wait", "gadi", GADI_2, "mpirun -np 8 python train.py", "mpirun -np 8 python train.py &", 10, True),
    ("wait", "jean-zay", JZ, "srun python train.py", "for i in 1 2; do\n  srun python $i.py &\ndone", 13, True),
    ("signal", "jean-zay", ONE.replace("--nodes=1", "--nodes=1 --signal=USR1@90"), "srun ", "", 4, False),
    ("signal", "jean-zay", ONE.replace("--nodes=1", "--nodes=1 --signal=USR1@90"),
     "srun python train.py", "wget https://host/file", 4, False),
    ("folder", "gadi", GADI_2, "mpirun -np 8 python train.py", "pbsdsh -n 0 -- ./run.sh", 10, False),
    ("folder", "gadi", GADI_2.replace("#PBS -l wd\n", "").replace("mpirun", "cd $PBS_O_WORKDIR\nmpirun"),
     "mpirun -np 8 python train.py", "pbsdsh -n 0 -- bash run.sh", 10, True),
    ("node-count", "gadi", GADI, "python", "NNODES=$(wc -l < $PBS_NODEFILE)\npython", 10, True),
    ("env", "gadi", GADI, "-l wd", "-l wd -v NCPUS=4", 8, True),
    ("env", "gadi", GADI, "python", "export NCPUS=4\npython", 10, False),
    ("download", "gadi", GADI, "python", "wget https://host/file\npython", 10, False),
    ("download", "jean-zay", JZ, "train.py", "train.py --report_to wandb", 12, False),
    ("download", "jean-zay", JZ, "srun", "wandb agent me/project/id\nsrun", 12, False),
    ("home", "gadi", GADI, "python", "source ${HOME}/env/bin/activate\npython", 10, False),
    ("home", "gadi", GADI, "train.py", "train.py > $HOME/train.txt", 10, False),
    ("home", "gadi", GADI, "-l wd", "-l wd -o /home/123/ab1234/train.o", 8, False),
    ("reach", "jean-zay", JZ, "srun", "cp /gpfsstore/x .\nsrun", 12, False),
    ("download", "jean-zay", JZ, "srun", "pip install lightning\nsrun", 12, False),
    ("storage", "gadi", GADI, "python train.py", "python train.py --data /g/data/wb00/MNIST", 10, True),
    ("storage", "gadi", GADI, "python train.py", "python train.py --out /scratch/xy12/out", 10, True),
    ("storage", "gadi", GADI, "train.py", "train.py --data /g/data1/wb00/MNIST", 10, True),
    ("storage", "gadi", GADI.replace("#PBS -P ab12\n", ""), "train.py", "train.py /scratch/xy12/out", 9, False),
    ("commands", "jean-zay", JZ, "srun", "idrquota -m\nsrun", 12, True),
    ("modules", "jean-zay", A100, "module load arch/a100\n", "", 12, True),
    ("modules", "jean-zay", A100, "module load arch/a100\n", "module load arch/h100\n", 12, True),
    ("modules", "jean-zay", A100.replace("pytorch-gpu/py3/2.8.0", "singularity"),
     "arch/a100", "cpuarch/amd", 12, False),
    ("modules", "jean-zay", A100, "arch/a100\nmodule load pytorch-gpu/py3/2.8.0",
     "pytorch-gpu/py3/2.8.0\nmodule load arch/a100", 13, True),
    ("folder", "gadi", GADI, "#PBS -l wd\n", "", 9, True),
    ("trainer", "jean-zay", JZ, "train.py", "train.py --devices 8", 12, True),
    ("trainer", "jean-zay", ALONE, "--nnodes=2 --rdzv-endpoint=$h:29500 ", "", 12, True),
    ("trainer", "jean-zay", ALONE, "--nproc_per_node=4 ", "", 12, False),
    ("trainer", "jean-zay", JZ, "train.py", "train.py --trainer.num_nodes=2", 12, True),
    ("job-name", "gadi", GADI, "-N train", "-N a/b", 2, True),
    ("job-name", "jean-zay", JZ, "=train", "=bash", 2, True),
]  # fmt: skip


@pytest.mark.parametrize(("check", "name", "right", "old", "new", "line", "refuses"), CASES)
def test_a_trap_is_found_at_its_line(check, name, right, old, new, line, refuses):
    """Whoever checks an old script is told of what is wrong, at the line where it stands, and of nothing else."""
    wrong = right.replace(old, new)
    assert wrong != right
    assert found(name, right, check) == []
    assert (line, refuses) in found(name, wrong, check)


def test_every_trap_has_a_case():
    """No trap is without a script that shows it."""
    assert {case[0] for case in CASES} >= set(SCRIPT_CHECKS)


@pytest.mark.parametrize("check", sorted(SCRIPT_CHECKS))
def test_what_a_check_rests_on_can_be_looked_up(check):
    """Each check cites the profile's line, a public address, a manual, or what a named version was seen to do."""
    own = SCRIPT_CHECKS[check]
    parts = [part for part in (own.source, *own.sources.values()) if part]
    assert parts or own.reads
    assert all(re.match(r"https://\S+$|\w+\(\dB?\)$|OpenPBS [\d.]+, seen$", part) for part in parts)


@pytest.mark.parametrize("text", [GADI, GADI_2])
def test_a_good_script_for_gadi_is_left_alone(text):
    """A script that Gadi runs as it is meant gets no remark."""
    assert look("gadi", text).diagnostics == []


@pytest.mark.parametrize("text", [JZ, A100, TORCHRUN, TWO])
def test_a_good_script_for_jean_zay_is_left_alone(text):
    """A script that Jean-Zay runs as it is meant gets no remark."""
    assert look("jean-zay", text).diagnostics == []


SILENT = [
    ("gadi", GADI.replace("python train.py", "cat >x.sh <<EOF\n#PBS -q normal\nEOF\npython train.py")),
    ("gadi", GADI.replace("walltime=10", "walltime=48")),  # just the limit
    ("gadi", GADI.replace("#PBS -q", "  #PBS -q").replace("#PBS -l wd", "\t#PBS -l wd")),  # PBS reads these too
    ("gadi", GADI.replace("mem=90GB", "mem=97GB")),  # charged as 12.2 cores
    ("gadi", GADI.replace("#PBS -N", "#SBATCH --nodes=1\n#PBS -N")),  # for either scheduler
    ("gadi", GADI.replace("python train.py", "N=$(sort -u $PBS_NODEFILE | wc -l)\npython train.py")),
    ("gadi", GADI.replace("python train.py", "NP=$(wc -l < $PBS_NODEFILE)\npython train.py")),
    ("gadi", GADI.replace("python train.py", "cp /scratch/ab12/x . # the project's own")),
    ("gadi", GADI.replace("python train.py", "# wget https://host/file\npython train.py /g/data/ab12/x")),
    ("gadi", GADI.replace("python train.py", "curl http://localhost:80/ &\npython train.py")),
    ("gadi", GADI.replace("python train.py", "pip install --no-index ./x.whl\npython train.py")),
    ("gadi", GADI.replace("#PBS -l wd\n", "").replace("python train.py", "python /home/123/ab1234/train.py")),
    ("gadi", GADI.replace("#PBS -l wd\n", "").replace("python", "cd $PBS_O_WORKDIR\npython")),
    ("gadi", GADI.replace("#PBS -l wd", "#PBS -l wd\n##PBS -q normal\n# a PBS -q comment")),
    ("gadi", GADI_2.replace("mpirun -np 8 python train.py",
                            "for i in $(seq 0 48 95); do pbsdsh -n $i -- python $PWD/train.py & done; wait")),
    ("jean-zay", JZ.replace("=10:00:00", "=20:00:00")),  # just the limit
    ("jean-zay", JZ.replace("--nodes=1", "--nodes=1 --signal=BUS@60")),
    ("jean-zay", JZ.replace("=10:00:00", "=1-12 --qos=qos_gpu-t4")),
    ("jean-zay", TORCHRUN.replace("srun python", "srun python -m torch.distributed.run --nproc_per_node=4")),
    ("jean-zay", TORCHRUN.replace("--gres=gpu:4", "--partition=gpu_p2 --gres=gpu:8").replace("=40", "=24")),
    ("jean-zay", TWO.replace("srun", "srun bash -c 'echo $SLURM_NODEID'\nexport MASTER_PORT=12345\nsrun")),
    ("jean-zay", JZ.replace("srun python", "python prepare.py\nsrun python")),
    ("jean-zay", JZ.replace("module purge", "##SBATCH --mem=4G\nmodule purge")),
    ("jean-zay", ONE.replace("srun ", "")),
    ("jean-zay", PREPOST),
    ("jean-zay", JZ.replace("--hint=nomultithread", "--threads-per-core=1")),
    ("jean-zay", JZ.replace("train.py", "train.py \\")),
    ("jean-zay", JZ.replace("srun python train.py", "export WANDB_MODE=offline\nsrun python x.py --report_to wandb")),
    *[
        (
            "jean-zay",
            f"#!/bin/bash\n#SBATCH --partition={part} -A abc@v100 -n1 -t 1:00:00 --hint=nomultithread\nmake\n",
        )
        for part in ("prepost", "visu", "archive", "compil")
    ],
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), SILENT)
def test_what_is_legal_is_left_alone(name, text):
    """Limits just met, directives of another file, several GPUs for one process, partitions without -C: no remark."""
    assert look(name, text).diagnostics == []


def test_a_missing_folder_is_named():
    """An --output below a folder that is not there is refused; where the folder is there, nothing is said."""
    wrong = JZ.replace("--nodes=1", "--nodes=1 --output=logs/%j.out")
    assert found("jean-zay", wrong, "log-folder", folders=False) == [(4, True)]
    assert found("jean-zay", wrong, "log-folder", folders=True) == []


@pytest.mark.parametrize(("options", "count"), [("-o logs/", 0), ("-o logs/ -k oed", 1)])
def test_a_folder_that_a_script_makes_is_not_missing(options, count):
    """PBS writes the output at the end of the job, unless -k has it written while the job runs."""
    text = GADI.replace("-l wd", f"-l wd\n#PBS {options}").replace("python", "mkdir -p ./logs\npython")
    assert len(found("gadi", text, "log-folder", folders=False)) == count


def test_cpus_are_hyperthreads_without_the_hint():
    """Two of them are a core: what is too much, what is right instead, and no hint where it would be too much."""
    text = ONE.replace("#SBATCH --hint=nomultithread\n", "")
    assert found("jean-zay", text.replace("cpus-per-task=10", "cpus-per-task=20"), "cpus") == []
    (one,) = (one for one in look("jean-zay", text.replace("=10\n", "=24\n")).diagnostics if one.check == "cpus")
    assert "12 cores of 2 hyperthreads" in one.message
    assert "use --cpus-per-task=20" in one.message
    edits = [[bool(one.edits) for one in look("jean-zay", script).diagnostics if one.check == "site-directive"]
             for script in (text, text.replace("=10\n", "=24\n"))]  # fmt: skip
    assert edits == [[True], [False]]


def test_gpus_where_there_are_none_are_left_out():
    """--gres=gpu:0 is not suggested, which the site refuses."""
    text = CPU.replace("--nodes=2", "--nodes=1 --gres=gpu:1")
    (one,) = (one for one in look("jean-zay", text).diagnostics if one.check == "gpus")
    assert one.message.endswith("use no --gres")


def test_a_total_is_named_as_it_stands():
    """160 GB on three nodes are no multiple of a whole number for each."""
    text = CORES.replace("ncpus=72,mem=380GB,jobfs=800GB", "ncpus=144,mem=570GB,jobfs=160GB")
    (one,) = (one for one in look("gadi", text).diagnostics if one.check == "jobfs")
    assert one.message.startswith("-l jobfs=160GB is the total of 3 nodes")
    assert one.message.endswith("use -l jobfs=480GB")


def test_a_plan_s_finding_stands_at_the_option_s_line():
    """What a check of requests refuses is told at the line of the directive that asks for it."""
    text = GADI_2.replace("walltime=10", "walltime=49")
    (one,) = look("gadi", text).diagnostics
    assert (one.line, one.check, one.refuses) == (6, "walltime", True)
    assert "gadi.yaml:" in one.source


def test_a_trap_of_one_line_does_not_hide_what_is_wrong_in_another():
    """An account of other GPUs is refused, be there a $VARIABLE in a directive elsewhere, forced to pass, or not."""
    wrong = JZ.replace("abc@v100", "abc@a100").replace("--nodes=1", "--nodes=1 --constraint=v100-32g")
    with_variable = wrong.replace("--hint=nomultithread", "--hint=nomultithread --output=$HOME/x.out")
    assert found("jean-zay", wrong, "account") == [(3, True)]
    report = examine(with_variable, search.load("jean-zay"), {"force": ["directives"]})
    assert [(one.line, one.check) for one in report.diagnostics if one.refuses] == [(3, "account")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gadi", GADI.replace("#PBS -P ab12\n", "")),
        ("gadi", GADI.replace("-P ab12", "-P your_project")),
        ("gadi", GADI.replace("-l wd", "-l wd -V")),
        ("gadi", GADI.replace("ncpus=12,ngpus=1,mem=90GB,jobfs=100GB", "select=1:ncpus=12:ngpus=1:mem=90GB,jobfs=9GB")),
        ("jean-zay", JZ.replace("=10:00:00", "=20:00:01")),
        ("jean-zay", A100.replace("arch/a100", "arch/h100")),
        ("jean-zay", JZ.replace("srun", "idrquota -m\nsrun")),
        ("jean-zay", JZ.replace("train.py", "train.py --devices 8")),
    ],
)  # fmt: skip
def test_what_a_trap_and_a_check_both_see_is_said_once(name, text):
    """A mistake that a script and its request both show has one line of output."""
    assert (
        len([one for one in look(name, text).diagnostics if one.refuses or one.check in ("account", "directives")]) == 1
    )


@pytest.mark.parametrize(
    ("name", "text", "check", "key"),
    [
        ("gadi", GADI.replace("python", "wget https://host/file\npython"), "download", ("internet",)),
        ("jean-zay", JZ.replace("#SBATCH --hint=nomultithread\n", ""), "site-directive", ("directives",)),
        ("jean-zay", A100.replace("arch/a100", "arch/h100"), "modules", ("partitions", "h100", "modules")),
        ("jean-zay", JZ.replace("srun", "idrquota\nsrun"), "commands", ("removed_commands", "idrquota")),
        ("gadi", CORES, "whole-nodes", ("multi_node",)),
    ],
)  # fmt: skip
def test_a_trap_names_the_profile_s_line_that_it_rests_on(name, text, check, key):
    """A key that site and partition both have is cited where it was read, and not at the partition's name."""
    profile = search.load(name)
    assert profile.where(key) != profile.where(key[:-1])
    (one,) = [one for one in look(name, text).diagnostics if one.check == check]
    assert one.source == profile.where(key)


def test_an_unconfirmed_key_of_the_site_warns(tmp_path):
    """A site's own word on a key that its partitions could have too counts: unconfirmed, it does not refuse."""
    (tmp_path / "mine.yaml").write_text("extends: gadi\ntitle: Mine\nunconfirmed: [multi_node]\n")
    assert found("gadi", CORES, "whole-nodes") == [(5, True)]
    assert found(str(tmp_path / "mine.yaml"), CORES, "whole-nodes") == [(5, False)]


def test_a_forced_check_only_warns():
    """--force lets a trap warn, as it does with a request's checks."""
    report = examine(JZ.replace("srun ", ""), search.load("jean-zay"), {"force": ["fan-out"]})
    assert [(one.check, one.refuses) for one in report.diagnostics] == [("fan-out", False)]


@pytest.mark.parametrize("option", ["-r y", "-ry"])
def test_a_rerunnable_array_is_one_however_that_is_written(option):
    """`-ry` counts as `-r y` does: no word of an array that PBS would refuse."""
    remarks = look("gadi", GADI.replace("-l wd", f"-l wd\n#PBS -J 0-3\n#PBS {option}")).diagnostics
    assert not any("rerunnable" in one.message for one in remarks)
    plan, findings = consider(search.load("gadi"), make_request({"directive": ["-J 0-3", option], "command": ["x"]}))
    assert plan is not None
    assert not any("rerunnable" in one.message for one in findings)
