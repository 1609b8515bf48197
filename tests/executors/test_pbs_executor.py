"""Python functions as PBS jobs, in submitit's way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import program, wait_until

import hpclaunch
from hpclaunch.errors import RequestError, SchedulerError
from hpclaunch.executors.environment import HpclaunchJobEnvironment
from hpclaunch.executors.pbs import PbsExecutor
from hpclaunch.schedulers import pbs


def python(text: str, seconds: float = 120) -> str:
    """Run a program of a person's, expect no error, return what it prints."""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=seconds, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def calls(name: str, monkeypatch, work: Path) -> Path:
    """Count how often a program is called."""
    real = next(Path(folder, name) for folder in os.environ["PATH"].split(":") if Path(folder, name).exists())
    program(work / "counting" / name, f'echo "$@" >>"{work}/{name}.calls"\nexec "{real}" "$@"')
    monkeypatch.setenv("PATH", f"{work / 'counting'}:{os.environ['PATH']}")
    return work / f"{name}.calls"


def test_auto_executor_runs_functions_on_every_rank(qsub, work):
    """With hpclaunch installed, submitit's AutoExecutor works on any PBS: four ranks, results, logs, folder kept."""
    qsub()
    printed = python("""
import os, submitit
def place(factor):
    print("rank", os.environ["RANK"])
    return factor * int(os.environ["RANK"]), os.environ["NODE_RANK"], os.environ["WORLD_SIZE"], os.getcwd()
executor = submitit.AutoExecutor("logs of mine", cluster="pbs")
executor.update_parameters(nodes=2, tasks_per_node=2, cpus_per_task=2, timeout_min=5, name="mine", pbs_queue="normal")
job = executor.submit(place, 10)
results = job.results()
assert [r[:3] for r in results] == [(0, "0", "4"), (10, "0", "4"), (20, "1", "4"), (30, "1", "4")], results
assert {r[3] for r in results} == {os.getcwd()}
assert job.done() and job.num_tasks == 4
assert "rank 3" in job.task(3).stdout()
assert job.paths.submission_file.read_text().startswith("#!/bin/bash")
print(job.job_id)
""")
    assert (work / "logs of mine" / f"{printed.strip()}_0_result.pkl").exists()
    assert (work / "hpclaunch-runs" / printed.strip() / "rank-0.log").exists()


@pytest.mark.slow
def test_exceptions_come_back(qsub):
    """A function that raises fails its job with its traceback; a worker that is killed fails it with the log's end."""
    qsub()
    assert "fine" in python("""
import os, submitit
from submitit.core.utils import FailedJobError, UncompletedJobError
def zero():
    raise ValueError("zero")
def die():
    print("last words", flush=True)
    os._exit(3)
executor = submitit.AutoExecutor("logs", cluster="pbs")
executor.update_parameters(timeout_min=5, pbs_site="gadi-here", pbs_partition="normal", cpus_per_task=1)
raising, dying = executor.submit(zero), executor.submit(die)
error = raising.exception()
assert isinstance(error, FailedJobError) and "ValueError: zero" in str(error), error
dying._results_timeout_s = 1
error = dying.exception()
assert isinstance(error, UncompletedJobError) and "last words" in str(error), error
assert dying.state == "FAILED", dying.state
print("fine")
""")


def test_cancel_and_state(qsub, monkeypatch, work):
    """A job is asked for and cancelled by its handle, also by a handle that another process made from its id."""
    qsub()
    assert "fine" in python("""
import pickle, subprocess, sys, time, submitit
executor = submitit.AutoExecutor("logs", cluster="pbs")
executor.update_parameters(timeout_min=5, pbs_site="gadi-here", pbs_partition="normal", cpus_per_task=1)
job = executor.submit(time.sleep, 100)
while job.get_info()["State"] != "RUNNING":
    time.sleep(0.2)
open("job.pkl", "wb").write(pickle.dumps(job))
other = "import pickle; job = pickle.load(open('job.pkl', 'rb')); assert job.state == 'RUNNING'; job.cancel()"
subprocess.run([sys.executable, "-c", other], check=True)
job.wait()
assert job.state == "CANCELLED", job.state
print("fine")
""")


def test_map_array_is_one_submission(qsub, monkeypatch, work):
    """Several functions are one array, one function is a plain job (PBS refuses 0-0), each with its own result."""
    qsub()
    asked = calls("qsub", monkeypatch, work)
    printed = python("""
import submitit
executor = submitit.AutoExecutor("logs", cluster="pbs")
executor.update_parameters(timeout_min=5, pbs_queue="normal")
jobs = executor.map_array(lambda n: n * n, [1, 2, 3])
print(*(job.job_id for job in jobs))
print([job.result() for job in jobs])
print(executor.map_array(lambda n: n * n, [5])[0].result())
""")
    ids, results, one = printed.splitlines()
    number = ids.split("[")[0]
    assert ids == " ".join(f"{number}[{index}].gadi-pbs" for index in range(3))
    assert (results, one) == ("[1, 4, 9]", "25")
    assert len(asked.read_text().splitlines()) == 2


def test_a_site_without_arrays_refuses_them(qsub, monkeypatch, work):
    """map_array and batch() end with the reason and submit nothing; a check that is forced warns and goes on."""
    qsub()
    profile = work / "site_profiles" / "gadi-here.yaml"
    profile.write_text(f"{profile.read_text()}unconfirmed: []\n")
    asked = calls("qsub", monkeypatch, work)
    printed = python("""
import hpclaunch, warnings
options = dict(partition="normal", cpus_per_task=1, tasks_per_node=1)
executor = hpclaunch.executor("gadi-here", **options)
def batch():
    with executor.batch():
        executor.submit(abs, 1), executor.submit(abs, 2)
for attempt in (lambda: executor.map_array(abs, [1, 2, 3]), batch):
    try:
        attempt()
    except Exception as error:
        print(error)
print(executor.submit(abs, -3).result())
with warnings.catch_warnings(record=True) as said:
    jobs = hpclaunch.executor("gadi-here", force=["arrays"], **options).map_array(abs, [-4, -5, -6])
print(len(said), [job.result() for job in jobs])
""")
    assert re.sub(r"gadi\.yaml:\d+", "gadi.yaml", printed).splitlines() == [
        "arrays: -J 0-2: gadi-here takes no arrays; submit each job by itself [gadi.yaml]",
        "arrays: -J 0-1: gadi-here takes no arrays; submit each job by itself [gadi.yaml]",
        "3",
        "1 [4, 5, 6]",
    ]
    assert len(asked.read_text().splitlines()) == 2


def test_an_array_that_may_be_taken_is_warned_of(qsub, monkeypatch, work):
    """Where the profile is not sure that arrays are refused, map_array warns as `check` does and the site decides."""
    qsub()
    asked = calls("qsub", monkeypatch, work)
    printed = python("""
import hpclaunch, warnings
executor = hpclaunch.executor("gadi-here", partition="normal", cpus_per_task=1, tasks_per_node=1)
with warnings.catch_warnings(record=True) as said:
    jobs = executor.map_array(abs, [-1, -2])
print(*(warning.message for warning in said), sep="\\n")
print([job.result() for job in jobs])
""")
    assert re.sub(r"gadi\.yaml:\d+", "gadi.yaml", printed).splitlines() == [
        "arrays: -J 0-1: gadi-here may take no arrays; submit each job by itself [gadi.yaml, not confirmed]",
        "[1, 2]",
    ]
    assert len(asked.read_text().splitlines()) == 1


def test_an_array_that_the_site_refuses_leaves_nothing(qsub, work):
    """If the site refuses the array itself, its own words are the error, and no job is lost: none was submitted."""
    qsub(arrays=False)
    executor = hpclaunch.executor("gadi-here", partition="normal", cpus_per_task=1, tasks_per_node=1)
    with (
        pytest.warns(UserWarning, match="may take no arrays"),
        pytest.raises(SchedulerError, match="arrays are not allowed"),
    ):
        executor.map_array(abs, [-1, -2])
    assert not list((work / "hpclaunch-runs").glob("*.gadi-pbs"))


def test_functions_find_their_hosts_and_their_job_its_name(qsub, work):
    """A job is named after its function, hostnames lists the node of each rank, and submitit's helper exports."""
    qsub()
    assert python("""
import os, submitit
from functools import partial
def train(rate):
    environment = submitit.JobEnvironment()
    place = submitit.helpers.TorchDistributedEnvironment().export()
    assert os.environ["MASTER_ADDR"] == place.master_addr == environment.hostnames[0]
    assert [os.environ["RANK"], os.environ["MASTER_PORT"]] == [str(place.rank), str(place.master_port)]
    return len(set(environment.hostnames)), environment.num_nodes, place.world_size
executor = submitit.AutoExecutor("logs", cluster="pbs")
executor.update_parameters(nodes=2, tasks_per_node=2, timeout_min=5, pbs_queue="normal")
job = executor.submit(partial(train, 1))
print(job.results())
print(*(line for line in job.paths.submission_file.read_text().splitlines() if line.startswith("#PBS -N")))
""").splitlines() == [str([(2, 2, 4)] * 4), "#PBS -N train"]


def test_wrong_parameters_come_with_the_right_ones(qsub):
    """An unknown parameter is refused with the list of those there are, a wrong value with the site's reason."""
    qsub()
    executor = PbsExecutor("logs")
    with pytest.raises(ValueError, match=r"unknown parameter walltme; there are account.*queue.*walltime"):
        executor.update_parameters(walltme="1h")
    with pytest.raises(RequestError, match="gpus: 5 GPUs per node, but a gpuvolta node has 4"):
        executor.update_parameters(site="gadi", queue="gpuvolta", gpus_per_node=5)
    executor.update_parameters(queue="gpuq", gpus_per_node=4, mem_gb=1.5, timeout_min=90, project="ab12")
    assert (executor.plan.partition_name, executor.plan.walltime, executor.plan.mem_gb_per_node) == (
        "gpuq",
        "01:30:00",
        2,
    )
    assert (executor.plan.account, executor.plan.world_size) == ("ab12", 1)


@pytest.mark.parametrize("site", ["gadi", "jean-zay", "local"])
def test_parameters_change_what_is_submitted_under_every_scheduler(site):
    """update_parameters makes the plan anew, in submitit's names or ours, and refuses what it does not know."""
    executor = hpclaunch.executor(site, account="ab12" if site == "gadi" else "abc@v100", tasks_per_node=2)
    executor.update_parameters(timeout_min=90, name="mine", nodes=2, tasks_per_node=4)
    plan = executor.plan
    assert (plan.walltime, plan.job_name, plan.nodes, plan.world_size) == ("01:30:00", "mine", 2, 8)
    assert "WORLD_SIZE=8" in executor._script(plan)
    with pytest.raises(ValueError, match=r"unknown parameter walltme; there are account.*walltime"):
        executor.update_parameters(walltme="1h")
    assert executor.plan == plan


@pytest.mark.parametrize(("site", "directive"), [("pbs", "#PBS -J 0-9%4"), ("slurm", "#SBATCH --array=0-9%4")])
def test_so_many_jobs_of_an_array_run_at_once(site, directive):
    """array_parallelism, with the scheduler's name in front as in submitit or without, is in the array's directive."""
    executor = hpclaunch.executor(site, tasks_per_node=1)
    executor.update_parameters(**{f"{site}_array_parallelism": 4})
    assert directive in executor._script(executor._worker_plan(abs, 10)).splitlines()
    with pytest.raises(ValueError, match="array_parallelism: 0 jobs at once"):
        executor.update_parameters(array_parallelism=0)


def test_the_script_is_the_usual_one(qsub, cli):
    """A function's job asks PBS for what the command line asks; its ranks are submitit's and told of the walltime."""
    words = ("--site", "pbs", "--launcher", "tasks", "--tasks-per-node", "2", "--job-name", "mine", "-t", "5m")
    usual = cli("render", *words, "--quiet", "--", "true").stdout
    executor = PbsExecutor("logs")
    executor.update_parameters(name="mine", tasks_per_node=2, timeout_min=5)
    script = executor._script(executor._worker_plan(abs))
    directives = [[line for line in text.splitlines() if line.startswith("#PBS")] for text in (script, usual)]
    assert directives[0] == directives[1] != []
    assert "-m submitit.core._submit" in script
    assert 'kill -USR2 "$pid"' in script


@pytest.mark.slow
def test_an_hour_of_waiting_asks_as_often_as_the_site_likes(qsub, monkeypatch, work):
    """While a program waits for its jobs, qstat is called once for all, and then not before `poll` is over.

    None of them counts as done before its end, although qstat answers for the first of several ids only.
    """
    qsub()
    asked = calls("qstat", monkeypatch, work)
    python("""
import time, hpclaunch
executor = hpclaunch.executor("gadi-slow", partition="normal", cpus_per_task=1, tasks_per_node=1)
jobs = [executor.submit(time.sleep, 4) for _ in range(2)]
assert not any(job.done() for job in jobs)
for job in jobs:
    job.result()
""")
    assert len(asked.read_text().splitlines()) <= 2


def test_the_plugin_costs_other_submitit_jobs_little():
    """Submitit loads the plugin in each of its jobs: the profiles, templates and the command line stay out of that."""
    heavy = {"jinja2", "yaml", "click", "hpclaunch.profile.model"}
    probe = f"import sys, hpclaunch.executors.pbs; print(*{heavy} & {{*sys.modules}})"
    assert python(probe) == "\n"


@pytest.fixture
def in_job(qsub, monkeypatch, work):
    """The environment of rank 0 of a job that runs."""
    qsub()
    first = pbs.submit("#!/bin/bash\n#PBS -q normal\n#PBS -l ncpus=1,mem=1GB,walltime=00:01:00\nsleep 1\n")
    folder = work / "hpclaunch-runs" / first
    folder.mkdir(parents=True)
    (folder / "job.sh").write_text(
        "#!/bin/bash\n#PBS -N again\n#PBS -q normal\n#PBS -l ncpus=1\n#PBS -l mem=1GB\n#PBS -l walltime=00:01:00\n"
        'cd "$PBS_O_WORKDIR"\nmkdir -p out\necho "$HPCLAUNCH_JOB $HPCLAUNCH_ATTEMPT" >out/$PBS_JOBID\n'
    )
    monkeypatch.setenv("HPCLAUNCH_RUN_DIR", str(folder))
    monkeypatch.setenv("PBS_JOBID", first)
    monkeypatch.chdir(work.parent)
    return folder


def test_a_checkpointed_function_goes_on_in_one_new_job(in_job, work):
    """A requeue by submitit submits the same script again from where it was, once, and notes the new job."""
    environment = HpclaunchJobEnvironment()
    environment._requeue(2)
    environment._requeue(2)
    (job_id,) = (in_job / "attempts").read_text().split()
    wait_until((work / "out" / job_id).exists)
    wait_until(lambda: (work / "out" / job_id).read_text() == f"{in_job.name} 2\n")


def test_what_cannot_go_on_says_so(in_job, monkeypatch):
    """One job of an array, and a site whose jobs may not submit, end with the reason and can be tried again."""
    environment = HpclaunchJobEnvironment()
    monkeypatch.setenv("PBS_JOBID", "12[3].gadi-pbs")
    with pytest.raises(SchedulerError, match="one job of an array"):
        environment._requeue(2)
    monkeypatch.setenv("PBS_JOBID", in_job.name)
    (in_job / "job.sh").write_text("#!/bin/bash\n#PBS -q nowhere\n")
    with pytest.raises(SchedulerError, match="Unknown queue"):
        environment._requeue(2)
    assert {path.name for path in in_job.iterdir()} == {"job.sh"}
