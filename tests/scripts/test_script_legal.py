"""Scripts of other people that run as they are: `hpclaunch check --script` does not refuse them."""

from __future__ import annotations

import pytest
from msgspec import structs

from hpclaunch.job.storage import named_by
from hpclaunch.profile import search
from hpclaunch.scripts.examine import Report, examine

GADI = """\
#!/bin/bash
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=96,ngpus=8,mem=760GB,jobfs=800GB,walltime=1:00:00
#PBS -l wd
"""
GADI_1 = GADI.replace("ncpus=96,ngpus=8,mem=760GB,jobfs=800GB", "ncpus=48,ngpus=4,mem=380GB,jobfs=400GB")
JZ = """\
#!/bin/bash
#SBATCH --account=abc@v100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=40
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
"""
JZ_1 = JZ.replace("--nodes=2", "--nodes=1")
JZ_4 = JZ_1.replace("node=1", "node=4").replace("task=40", "task=10")
CPU = """\
#!/bin/bash
#SBATCH --account=abc@cpu
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=10:00:00
"""


def look(name: str, text: str) -> Report:
    return examine(text, search.load(name))


def of(name: str, text: str, check: str) -> list[bool]:
    return [one.refuses for one in look(name, text).diagnostics if one.check == check]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gadi", GADI + "plrun_nccl.sh train.py --epochs 50\n"),
        ("gadi", GADI + "./launch_all.sh python train.py\n"),
        ("gadi", GADI + ". ./functions.sh\non_all_nodes python train.py\n"),
        ("jean-zay", JZ + "./launch_all.sh python train.py\n"),
        ("jean-zay", CPU + "python prepare.py\n"),
        ("jean-zay", CPU.replace("--nodes=1", "--nodes=3") + "python3 driver.py --dask\n"),
    ],
)
def test_a_wrapper_may_start_the_other_nodes_itself(name, text):
    """What starts the other ranks itself, or uses processes of its own, is warned of and not refused."""
    assert of(name, text, "fan-out") == [False]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gadi", GADI + "parallel --sshloginfile $PBS_NODEFILE python train.py ::: 1 2\n"),
        ("jean-zay", JZ + "ray start --head\npython driver.py\n"),
        ("jean-zay", JZ_1 + "torchrun --nproc_per_node 4 train.py\n"),
        ("jean-zay", JZ_4 + "torchrun --nproc_per_node 4 train.py\n"),
        ("jean-zay", JZ_4 + "torchrun $ARGS train.py\n"),
        ("jean-zay", JZ_4 + "accelerate launch --num_processes 4 train.py\n"),
    ],
)
def test_what_reaches_the_other_ranks_is_left_alone(name, text):
    """Ray, GNU parallel with hosts, and torchrun on one node start what they should: nothing is said."""
    assert of(name, text, "fan-out") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jean-zay", JZ + "torchrun --nproc_per_node 4 train.py\n"),
        ("jean-zay", JZ_4 + "python train.py\n"),
        ("jean-zay", JZ_4 + "singularity exec --nv x.sif python train.py\n"),
        ("gadi", GADI + "./train.py\n"),
    ],
)
def test_a_bare_python_on_several_gpus_is_refused(name, text):
    """A training that waits for ranks that nothing starts is an error still."""
    assert of(name, text, "fan-out") == [True]


def test_lightning_on_pbs_may_use_a_part_of_the_gpus():
    """--devices 2 of 4 GPUs is legal where no Slurm tells Lightning otherwise; more than there are is not."""
    assert of("gadi", GADI_1 + "python train.py --devices 2\n", "trainer") == [False]
    assert of("gadi", GADI_1 + "python train.py --devices 8\n", "trainer") == [True]
    assert of("jean-zay", JZ_4 + "srun python train.py --devices 2\n", "trainer") == [True]


def test_a_script_without_a_queue_is_told_only_that():
    """Where no queue is named, nothing is said of GPUs that another queue would have."""
    text = "#!/bin/bash\n#PBS -P ab12\n#PBS -l ncpus=4,mem=16GB,jobfs=1GB,walltime=6:00:00,wd\npython train.py\n"
    assert [(one.check, one.refuses) for one in look("gadi", text).diagnostics] == [("partition", False)]


def test_another_machine_s_folder_is_no_refusal():
    """An absolute folder of the output that is missing here may be there on the site."""
    text = JZ_4 + "#SBATCH --output=/lustre/logs/%j.out\nsrun python train.py\n"
    for here in (False, True):
        report = examine(text, search.load("jean-zay"), missing=lambda folders, here=here: dict.fromkeys(folders, here))
        assert [one.refuses for one in report.diagnostics if one.check == "log-folder"] == [here]


@pytest.mark.parametrize(
    ("name", "text", "check"),
    [
        ("gadi", GADI_1.replace("gpuvolta", "analysis") + "python train.py\n", "partition"),
        ("jean-zay", JZ_4 + "#SBATCH --qos=qos_gpu-gc\nsrun python train.py\n", "qos"),
    ],
)
def test_what_special_grants_have_is_no_refusal(name, text, check):
    """A queue or QoS that is known to be for some people only is warned of, with what describes it."""
    (one,) = (one for one in look(name, text).diagnostics if one.check == check)
    assert not one.refuses
    assert f"profile of your own that extends {name}" in one.message
    assert not look(name, text).refused


def test_a_request_may_have_a_special_grant_s_qos(cli):
    """`check --qos` of a special grant plans the job; any other unknown one says which way is out."""
    words = ("check", "--site", "jean-zay", "-A", "abc@v100", "--qos")
    assert cli(*words, "qos_gpu-gc", "--", "python", "train.py").exit_code == 0
    other = cli(*words, "qos_gpu-xy", "--", "python", "train.py")
    assert other.exit_code == 1
    assert "--force qos" in other.stdout


def test_a_signal_with_its_trap_is_fine():
    """A B: signal that the script's trap hears is no trap."""
    text = JZ_4 + "#SBATCH --signal=B:USR1@120\ntrap 'touch stop' USR1\nsrun python train.py & wait\n"
    assert of("jean-zay", text, "signal") == []


def test_a_price_limit_counts_for_a_script(cli, work):
    """--max-cost, and max_cost of the config file, refuse a script that may cost more."""
    (work / "old.sh").write_text(GADI_1 + "python train.py\n")
    words = ("check", "--script", "old.sh", "--site", "gadi")
    assert cli(*words, "--max-cost", "1000").exit_code == 0
    assert "above the limit of 10 SU" in cli(*words, "--max-cost", "10").stdout
    (work / "hpclaunch.yaml").write_text("max_cost: 10\n")
    assert "above the limit of 10 SU" in cli(*words).stdout


def test_an_array_where_there_are_none_has_one_finding():
    """Where a site takes no arrays, nobody is told how to make theirs; where that is not sure, it is not said so."""
    text, gadi = GADI_1 + "#PBS -J 0-20\npython train.py\n", search.load("gadi")
    sure = structs.replace(gadi, site=structs.replace(gadi.site, unconfirmed=[]))
    for profile, says in ((gadi, "may take no arrays"), (sure, "takes no arrays")):
        found = [one.message for one in examine(text, profile).diagnostics if one.check == "arrays"]
        assert sum("no arrays" in message for message in found) == 1
        assert says in " ".join(found)
        assert ("-r y" in " ".join(found)) == (profile is gadi)


def test_chunks_are_counted_as_chunks():
    """With select= the nodefile has a line for each chunk, and pbsdsh counts those."""
    text = (
        "#!/bin/bash\n#PBS -l select=2:ncpus=8,walltime=1:00:00\ncd $PBS_O_WORKDIR\nNNODES=$(wc -l < $PBS_NODEFILE)\n"
    )
    text += "for i in 0 1; do pbsdsh -n $i -- $PWD/run.sh $NNODES & done; wait\n"
    assert of("pbs", text, "pbsdsh") + of("pbs", text, "node-count") == []


def test_an_address_is_no_path():
    """s3://g/data/x is a bucket's, and no file system is named for it; file:///g/data/x is one."""
    own = search.load("gadi").site
    assert named_by(own, None, ["s3://g/data/ab12/x", "gs://scratch/ab12"]) == []
    assert named_by(own, None, ["file:///g/data/ab12/x"]) == ["gdata/ab12"]


@pytest.mark.parametrize(
    ("text", "check", "refuses"),
    [
        ("pbsdsh -n 0 ./run.sh & pbsdsh -n 1 ./run.sh & wait\n", "pbsdsh", True),
        ("for i in 0 1; do pbsdsh -n $i ./run.sh & done; wait\n", "pbsdsh", True),
        ("i=0\nfor node in $(cat $PBS_NODEFILE | uniq); do\n  pbsdsh -n $i ./run.sh &\n  i=$((i+1))\ndone\nwait\n",
         "pbsdsh", True),
        ("pbsdsh -u hostname\npbsdsh -n 0 ./run.sh\n", "pbsdsh", True),
        ("pbsdsh -v -- hostname\npbsdsh -n 0 ./run.sh\n", "pbsdsh", False),
        ("N=$(wc -l < $PBS_NODEFILE)\ntorchrun --nnodes $N --nproc_per_node 4 train.py\n", "node-count", True),
        ("torchrun --nnodes=$(wc -l < $PBS_NODEFILE) --nproc_per_node 4 train.py\n", "node-count", True),
    ],
)  # fmt: skip
def test_more_ways_to_count_nodes_as_cores(text, check, refuses):
    """However a script counts nodes for pbsdsh or torchrun, it is told that PBS counts cores."""
    assert of("gadi", GADI + text, check) == [refuses]


@pytest.mark.parametrize(
    "text",
    ["pbsdsh -n 0 ./run.sh & pbsdsh -n 48 ./run.sh & wait\n",
     "for i in $(seq 0 $((PBS_NCPUS-1))); do pbsdsh -n $i ./run.sh & done; wait\n",
     "for i in 0 48; do pbsdsh -n $i ./run.sh & done; wait\n",
     "N=$(wc -l < $PBS_NODEFILE)\nmpirun -np $N ./a.out\n"],
)  # fmt: skip
def test_cores_counted_as_cores_are_fine(text):
    """Indices in steps of a node's cores, and a rank for each core, are what PBS has."""
    assert of("gadi", GADI + text, "pbsdsh") + of("gadi", GADI + text, "node-count") == []


@pytest.mark.parametrize("text", ["wandb login\n", "uv pip install x\n", "rsync -av me@host:/x .\n", "scp host:/x .\n"])
def test_more_downloads(text):
    """wandb, uv, rsync and scp reach for the internet as well; a copy on the spot does not."""
    assert of("gadi", GADI_1 + text + "python train.py\n", "download") == [False]
    assert of("gadi", GADI_1 + "rsync -a x/ y/\npython train.py\n", "download") == []


def test_a_request_s_sync_is_a_download_too(cli):
    """`--setup 'wandb sync x'` is warned of where the nodes have no internet."""
    words = ("check", "--site", "gadi", "-A", "ab12", "--setup")
    for line in ("wandb sync x", "rsync -a me@host:/x ."):
        assert "warning  download: " in cli(*words, line, "--", "python", "train.py").stdout
    assert "download" not in cli(*words, "rsync -a x/ y", "--", "python", "train.py").stdout


def test_a_cache_in_the_home_folder_is_seen_in_lines_of_shell(cli):
    """`export HF_HOME=~/.cache` in a script or in --setup fills a small home folder: a warning."""
    assert of("gadi", GADI_1 + "export HF_HOME=~/.cache\npython train.py\n", "home") == [False]
    assert of("gadi", GADI_1 + "export HF_HOME=/scratch/ab12/c\npython train.py\n", "home") == []
    words = ("check", "--site", "gadi", "-A", "ab12", "--setup", "export HF_HOME=$HOME/.cache", "--", "python", "x.py")
    assert "warning  home: HF_HOME" in cli(*words).stdout


def test_storage_behind_a_link(cli, work, monkeypatch):
    """A script's path that leads into /g/data through a link needs that file system as well."""
    (work / "data").symlink_to("/g/data/zz99/set")
    (work / "old.sh").write_text(GADI_1 + f"python train.py --data {work}/data\n")
    told = cli("check", "--script", "old.sh", "--site", "gadi").stdout
    assert "old.sh:6: error: storage: " in told
    assert "in gdata/zz99, which the job does not see" in told


def test_totals_and_the_site_s_default_are_no_mistake(cli):
    """What hpclaunch itself asks for on two nodes is not said to be meant for each."""
    text = cli("render", "--site", "gadi", "-A", "ab12", "-p", "gpuhopper", "-N", "2", "--", "python", "x.py").stdout
    assert "jobfs=800GB" in text
    assert of("gadi", text, "jobfs") == []
    assert False in of("gadi", GADI.replace("mem=760GB", "mem=190GB") + "mpirun python train.py\n", "memory")


def test_findings_speak_the_script_s_words():
    """Where a request's check refuses, the way out is a directive, with PBS's sums of all nodes."""
    text = GADI.replace("jobfs=800GB", "jobfs=1800GB").replace("=1:00:00", "=49:00:00") + "mpirun python train.py\n"
    told = " ".join(one.message for one in look("gadi", text).diagnostics)
    assert "use -l jobfs=800GB" in told
    assert "use -l walltime=48:00:00" in told


def test_an_empty_command_is_refused(cli):
    """`-- ''` names no program."""
    result = cli("check", "--site", "gadi", "-A", "ab12", "--", "")
    assert result.exit_code == 1
    assert "first word is empty" in result.stdout


@pytest.mark.parametrize(
    "line",
    ["#SBATCH --array=1,", "#SBATCH --cluster=c1", "#SBATCH --exclusive", "#SBATCH --no-req"],
)
def test_sbatch_s_own_spellings_are_legal(line):
    """A list that ends in a comma, aliases and abbreviations: nothing is said."""
    assert look("jean-zay", JZ_4 + line + "\nsrun python train.py\n").diagnostics == []


def test_the_second_part_of_a_heterogeneous_job_is_said_not_to_be_checked():
    """It is legal, what stands before it counts, and whoever reads the answer knows."""
    (one,) = look("jean-zay", JZ_4 + "#SBATCH hetjob\n#SBATCH --nodes=5000\nsrun python train.py\n").diagnostics
    assert not one.fatal
    assert one.message.endswith("a heterogeneous job, of which only the part before this line is checked")


@pytest.mark.parametrize("line", ["#SBATCH --mail-type=END\n#SBATCH --mail-type=FAIL", "#SBATCH --mail-user="])
def test_mail_as_sbatch_reads_it_is_legal(line):
    """Of several --mail-type all count, and an address may be empty."""
    assert look("jean-zay", JZ_4 + line + "\nsrun python train.py\n").diagnostics == []


def test_totals_are_divided_with_a_queue_of_the_command_line():
    """-q on the command line tells how many nodes the script's totals are."""
    text = GADI.replace("#PBS -q gpuvolta\n", "") + "mpirun python train.py\n"
    report = examine(text, search.load("gadi"), {"partition": "gpuvolta"})
    assert report.request and (report.request.nodes, report.request.gpus_per_node) == (2, 4)
    assert report.diagnostics == []


def test_a_partition_that_is_named_wins_over_features():
    """--partition=gpu_p2 -C v100 is gpu_p2, with its eight GPUs."""
    text = (
        JZ_1.replace("gpu:4", "gpu:8 --partition=gpu_p2 -C v100").replace("task=40", "task=24") + "srun python x.py\n"
    )
    assert [one.check for one in look("jean-zay", text).diagnostics if one.refuses] == []


def test_late_directives_are_one_diagnostic():
    """Thirty directives below the first command are one line of output, which names theirs."""
    text = GADI_1 + "cd x\n" + "#PBS -m abe\n" * 30 + "python train.py\n"
    (one,) = (one for one in look("gadi", text).diagnostics if one.check == "late")
    assert "30 directives (lines 7-36) are ignored" in one.message


@pytest.mark.parametrize(
    "text",
    ["import os\nos.system('qsub')\nHEAD = '''\n#PBS -q normal\n'''\n", "cat >x <<E\n#PBS -q normal\nE\nqsub x\n"],
)
def test_what_is_no_job_script_is_one_diagnostic(text):
    """A program that writes job scripts is said to be none, and nothing else is said."""
    (one,) = look("gadi", text).diagnostics
    assert (one.check, one.refuses) == ("scheduler", False)
    assert "not a job script" in one.message


def test_no_account_names_the_script_s_option():
    """A script for Gadi is told of -P, one for Jean-Zay of --account; none of the option of hpclaunch."""
    (one,) = look("gadi", GADI_1.replace("#PBS -P ab12\n", "") + "python train.py\n").diagnostics
    assert one.check == "account" and "use -P ACCOUNT" in one.message and "-A" not in one.message
