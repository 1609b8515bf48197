"""Runs on another host, behind a program that stands in for ssh: what travels, where it goes, what comes back."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COUNT, FIRST_ID, PBS_PROFILES, call, program, slow, start, state, submit, wait_until

pytestmark = pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")

# Runs here what it is given, in a home folder of its own; counts connections, and breaks them when told.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do
    case $1 in
        -G) echo "hostname login1.cluster.test"; exit ;;
        -l) shift 2 ;;
        *) shift ;;
    esac
done
step() {{ # whether the number in a file is down to 0
    [[ -e {there}/$1 ]] || return
    n=$(($(cat {there}/$1) - 1)); echo $n >{there}/$1
    ((n == 0)) && rm {there}/$1
}}
step down-after && touch {there}/down
[[ ! -e {there}/down ]] || {{ echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255; }}
echo "$*" >>{there}/calls
shift
cd {there}/home || exit 1
env -i HOME="$PWD" USER=me PATH=/usr/bin:/bin bash -c "$*"; code=$?
! step lossy || exit 255
exit $code
"""
# A job's script runs at once, in the background, from where it was submitted.
SBATCH = """
n=$(($(cat ~/jobs 2>/dev/null || echo 100) + 1))
echo $n >~/jobs
cat >~/job-$n.sh
module() { :; }
export -f module
echo "$*" >>~/../words
SLURM_JOB_ID=$n SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1 bash ~/job-$n.sh >job_$n.out 2>&1 </dev/null &
echo $n
"""
SQUEUE = """
for file in ~/job-*.sh; do
    n=${file##*-} n=${n%.sh} word=RUNNING code=0
    exit=$(ls ~/*/*/hpclaunch-runs/$n/exit ~/scratch/*/*/hpclaunch-runs/$n/exit 2>/dev/null)
    [[ -z $exit ]] || { code=$(cat "$exit"); word=COMPLETED; ((code == 0)) || word=FAILED; }
    [[ ! -e ~/cancelled-$n ]] || word=CANCELLED
    echo "$n|$word|0|$((code << 8))|0|n1|None|"
done
"""
HOST = ("--host", "me@cluster")
SITE = """
title: A cluster
scheduler: slurm
hostnames: ["*.cluster.test"]
default_partition: cpu
launcher: tasks
partitions: {cpu: {cores_per_node: 2, free: true}}
"""


@pytest.fixture
def there(tmp_path, work, monkeypatch):
    """The other machine: its home folder, a scheduler, and ssh to it."""
    there = tmp_path / "there"
    (there / "home").mkdir(parents=True)
    programs = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": "touch ~/cancelled-${!#}", "scontrol": "echo localhost"}
    for name, text in programs.items():
        program(there / "bin" / name, f"#!/bin/bash{text if text[0] == chr(10) else chr(10) + text}\n")
    (there / "home" / ".bash_profile").write_text(f"echo Welcome\nPATH={there}/bin:$PATH\n")
    program(
        there / "bin" / "srun",
        '#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nSLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 "$@"\n',
    )
    program(tmp_path / "bin" / "ssh", SSH.format(there=there))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (there / "bin" / "python").symlink_to(sys.executable)
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "cluster.yaml").write_text(SITE)
    (work / "train.py").write_text("print('hello')\nopen('result.txt', 'w').write('42')\n")
    return there


def folders(there: Path) -> list[Path]:
    return sorted((there / "home" / "hpclaunch").iterdir())


def refused(*words: object, code: int = 1) -> str:
    """Call the command line, expect this exit code, return what it prints on stderr."""
    process = start(*words)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == code, stderr
    return stderr


def test_a_job_on_another_host_is_like_one_here(there, work):
    """Submitted with its files, waited for, its logs and results brought; its profile is found by the host's name."""
    job = submit(*HOST, "--wait", "--", "python3", "train.py")
    assert job == "101"
    (folder,) = folders(there)
    assert folder.name.startswith("work-")
    row = state(job)
    assert [row[key] for key in ("word", "site", "host")] == ["COMPLETED", "cluster", "me@cluster"]
    assert row["remote"] == f"{folder}/hpclaunch-runs/101"
    assert call("logs", job) == "[0] hello\n"
    assert call("wait", job) == ""
    assert "ended with exit code 0" in call("why", job)
    assert not (work / "hpclaunch-runs").exists()
    assert "result.txt" in call("fetch", job)
    assert (work / "result.txt").read_text() == "42"
    assert (work / "hpclaunch-runs" / job / "rank-0.log").exists()
    calls = (there / "calls").read_text()
    call("status", job)  # an end is known for good
    assert (there / "calls").read_text() == calls


def test_only_what_a_pattern_fits_is_brought(there, work):
    """A pattern is a name, a path or a folder; what was uploaded and not changed does not come back."""
    (work / "train.py").write_text("import os\nos.mkdir('out')\nfor n in 'ab': open(f'out/{n}.ckpt', 'w').write(n)\n")
    job = submit(*HOST, "--wait", "--", "python3", "train.py")
    assert [line.split()[2] for line in call("fetch", job, "a.*", "*.py").splitlines()] == ["out/a.ckpt"]
    assert [line.split()[2] for line in call("fetch", job, "out").splitlines()] == ["out/a.ckpt", "out/b.ckpt"]
    assert "no new file fits" in refused("fetch", job, "*.pt")


def test_what_git_ignores_stays(there, work):
    """Tracked and unignored files travel; of what the command names and does not, there is a warning."""
    subprocess.run(["git", "init", "-q"], check=True)
    (work / ".gitignore").write_text("data/\n*.log\n")
    (work / "data").mkdir()
    (work / "sub dir").mkdir()
    for name in ("data/big", "old.log", "sub dir/it's new", "tracked", "gone"):
        (work / name).write_text(name)
    subprocess.run(["git", "add", "tracked", "gone"], check=True)
    (work / "gone").unlink()
    process = start("submit", *HOST, "--", "python3", "train.py", "--data=data", "old.log")
    job, stderr = process.communicate(timeout=60)
    (folder,) = folders(there)
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    own = {name for name in found if not name.startswith(("hpclaunch-runs/", ".hpclaunch/", "job_", "result"))}
    assert own == {".gitignore", "site_profiles/cluster.yaml", "sub dir/it's new", "tracked", "train.py"}
    assert "hpclaunch: 5 files, " in stderr
    assert f" to me@cluster:{there}/home/hpclaunch\n" in stderr
    assert "warning: data stays here" in stderr
    assert "warning: old.log stays here" in stderr
    call("wait", job.strip())


def test_without_git_hidden_files_and_environments_stay(there, work):
    """Caches, environments and hidden files do not travel."""
    for name in (".secret", "__pycache__/x.pyc", "env/pyvenv.cfg", "env/bin/python", "a/b.py", ".cache/x"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    (work / "link").symlink_to("a")
    call("wait", submit(*HOST, "--", "true"))
    names = {path.name for path in folders(there)[0].iterdir()}
    assert {"train.py", "a", "link"} <= names
    assert names.isdisjoint({".secret", "__pycache__", "env", ".cache"})


def test_too_large_a_project_is_refused(there, work):
    """Above 500 MB the largest files are named and nothing is sent."""
    with (work / "data.bin").open("w") as file:
        file.truncate(600_000_000)
    message = refused("submit", *HOST, "--", "true")
    assert "exceed the limit of 500.0 MB" in message
    assert "data.bin (600.0 MB)" in message
    assert not (there / "home" / "hpclaunch").exists()


def test_the_second_upload_sends_what_differs(there, work):
    """A file that did not change is copied from the run before, and is no link to it."""
    (work / "data.txt").write_text("as here")
    call("wait", submit(*HOST, "--", "true"))
    first = folders(there)[0] / "data.txt"
    made = first.stat()
    first.write_text("as THEN")  # which nobody sees who compares size and time only
    os.utime(first, ns=(made.st_atime_ns, made.st_mtime_ns))
    call("wait", submit(*HOST, "--", "true"))
    second = folders(there)[1] / "data.txt"
    assert second.read_text() == "as THEN"
    assert not first.samefile(second)


@pytest.mark.parametrize("lost", [2, slow(3), 4, 5, slow(6)])
def test_a_lost_connection_loses_nothing(there, work, lost):
    """Whichever command's answer is lost, the job is submitted once and its id comes."""
    (there / "lossy").write_text(str(lost))
    job = submit(*HOST, "--wait", "--", "python3", "train.py")
    assert job == "101"
    assert not (there / "lossy").exists()
    assert (there / "home" / "jobs").read_text() == "101\n"
    assert call("logs", job) == "[0] hello\n"


@pytest.mark.parametrize("after", [4, slow(5)])
def test_an_interrupted_submission_goes_on(there, after):
    """When the host stays out of reach, one command goes on later, and submits nothing twice."""
    (there / "down-after").write_text(str(after))
    message = refused("submit", *HOST, "--wait", "--", "python3", "train.py", code=3)
    (name,) = re.findall(r"use: hpclaunch submit --resume (\S+)", message)
    assert "Connection refused" in message
    (there / "down").unlink()
    job = call("submit", "--resume", name).strip()
    assert job == "101"
    call("wait", job)
    assert (there / "home" / "jobs").read_text() == "101\n"
    assert f"--resume {name}: no such submission" in refused("submit", "--resume", name)


def test_ctrl_c_ends_no_submission(there):
    """Interrupted while the scheduler thinks, it goes on to the id that the scheduler gave."""
    program(there / "bin" / "sbatch", f"#!/bin/bash\ntouch {there}/asked\nsleep 3\n{SBATCH}")
    process = start("submit", *HOST, "--", "true")
    wait_until((there / "asked").exists)
    process.send_signal(signal.SIGINT)
    message = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    (name,) = re.findall(r"use: hpclaunch submit --resume (\S+)", message)
    assert call("submit", "--resume", name) == "101\n"
    assert (there / "home" / "jobs").read_text() == "101\n"


def test_an_unfinished_submission_is_named(there):
    """`jobs` says what is not finished."""
    (there / "down-after").write_text("4")
    message = refused("submit", *HOST, "--", "true", code=3)
    assert message.splitlines()[-1].partition("use: ")[2] in refused("jobs", code=0)


def test_a_host_out_of_reach_ends_nothing(there):
    """The state of its jobs is unknown, not FAILED; what is known already is printed."""
    job = submit(*HOST, "--", "sh", "-c", "echo before; until [ -e go ]; do sleep 0.1; done")
    wait_until(lambda: call("logs", job) == "[0] before\n")
    (there / "down").touch()
    assert "Connection refused" in refused("status", job, code=3)
    assert "UNKNOWN" in call("status", job, code=3)
    assert call("logs", job) == "[0] before\n"
    assert "not cancelled: me@cluster: " in refused("cancel", job, code=3)
    assert "me@cluster: ssh: connect" in refused("submit", *HOST, "--", "true", code=3)
    (there / "down").unlink()
    assert state(job)["word"] == "RUNNING"
    (folders(there)[0] / "go").touch()
    call("wait", job)


def test_logs_are_followed_while_they_grow(there):
    """`logs -f` shows each line once, also over a lost connection, and ends with the job."""
    command = "for n in 1 2 3 4 5 6; do echo line $n; sleep 1.5; done"
    job = submit(*HOST, "--", "sh", "-c", command)
    process = start("logs", "-f", job)
    wait_until(lambda: (there / "calls").read_text().count("--sender") > 3)
    (there / "lossy").write_text("1")
    assert process.communicate(timeout=60)[0].splitlines() == [f"[0] line {n}" for n in range(1, 7)]


def test_cancel_and_after_reach_the_host(there, work):
    """A job there is cancelled there; --after takes jobs of the same host only."""
    first = submit(*HOST, "--", "sleep", "60")
    call("cancel", first)
    assert (there / "home" / f"cancelled-{first}").exists()
    assert state(first)["word"] == "CANCELLED"
    submit(*HOST, "--after", first, "--", "true")
    assert f"--dependency=afterok:{first}" in (there / "words").read_text()
    assert "that job runs on me@cluster" in refused("submit", "--site", "local", "--after", first, "--", "true")


def test_a_refusal_is_the_schedulers(there):
    """Its words, exit code 3, and nothing to go on with."""
    program(there / "bin" / "sbatch", "#!/bin/bash\necho 'sbatch: error: Invalid account' >&2\nexit 1\n")
    message = refused("submit", *HOST, "--", "true", code=3)
    assert "hpclaunch: sbatch: error: Invalid account" in message
    assert "--resume" not in message + refused("jobs", code=0)


def test_a_variable_is_passed_on_and_not_shown(there, monkeypatch):
    """The value of --env NAME is this machine's; it stands in no file there."""
    monkeypatch.setenv("API_KEY", "it's a $secret")
    job = submit(*HOST, "--env", "API_KEY", "--wait", "--", "sh", "-c", 'echo "${#API_KEY}"')
    assert call("logs", job) == "[0] 14\n"
    assert subprocess.run(["grep", "-rF", "$secret", there], check=False).returncode == 1


def test_bundled_workloads_travel(there):
    """Without a COMMAND the program is brought along."""
    job = submit(*HOST, "--workload", "env", "--wait")
    assert "all fit together" in call("logs", job)


def test_a_script_of_ones_own(there, work):
    """`--script` is submitted there as it is."""
    (work / "own.sh").write_text("#!/bin/bash\n#SBATCH --time=5\necho own $PWD\n")
    job = submit(*HOST, "--script", "own.sh")
    (folder,) = folders(there)
    wait_until((folder / "job_101.out").exists)
    assert (there / "home" / f"job-{job}.sh").read_text() == (work / "own.sh").read_text()


def test_the_file_system_of_the_folder_is_requested(there, work):
    """Where jobs must name file systems, the one of the folder there is named; links here mean nothing."""
    words = (*HOST, "--site", "gadi", "-A", "ab12", "--remote-folder", "/g/data/wb00/me", "--dry-run")
    assert "gdata/wb00" in call("submit", *words, "--", "true")


def test_a_host_of_the_current_folder_is_not_used(there, work, tmp_path, monkeypatch):
    """A cloned repository cannot have files sent; the user's own config, and HPCLAUNCH_HOST, can."""
    (work / "hpclaunch.yaml").write_text("host: me@elsewhere\n")
    message = refused("submit", "--site", "cluster", "--", "true")
    assert "hpclaunch.yaml: host me@elsewhere is not used" in message
    monkeypatch.setenv("HPCLAUNCH_HOST", "me@cluster")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert submit("--", "true") == "101"
    monkeypatch.delenv("HPCLAUNCH_HOST")
    (tmp_path / "config" / "hpclaunch").mkdir(parents=True)
    (work / "hpclaunch.yaml").rename(tmp_path / "config" / "hpclaunch" / "hpclaunch.yaml")
    submit("--site", "cluster", "--", "true")
    assert "me@elsewhere" in (there / "calls").read_text()
    assert submit("--site", "local", "--wait", "--", "true").startswith("local-")


def test_rerun_goes_to_the_same_host(there, work):
    """A run on another host is submitted there again, with the code as it is here now."""
    first = submit(*HOST, "--wait", "--", "python3", "train.py")
    (work / "train.py").write_text("print('again')")
    job = call("rerun", first, "--wait").strip()
    assert job == "102"
    assert call("logs", job) == "[0] again\n"


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "me@-oProxyCommand=x", "a b", "host:path", "$(id)"])
def test_a_host_is_no_option(there, host):
    """What ssh or rsync would take for something else is refused."""
    assert "no host" in refused("submit", f"--host={host}", "--site", "cluster", "--", "true")
    assert not (there / "calls").exists()


def test_no_profile_knows_the_host(there, work):
    """The names that were looked up are in the message; an alias that is a profile's name counts."""
    (work / "site_profiles" / "cluster.yaml").write_text(SITE.replace("cluster.test", "other.test"))
    assert "which site is somewhere or login1.cluster.test?" in refused("submit", "--host", "somewhere", "--", "true")
    assert submit("--host", "cluster", "--", "true") == "101"
    assert "local is this machine" in refused("submit", *HOST, "--site", "local", "--", "true")


@pytest.mark.slow
def test_attempts_on_pbs_are_one_run(there, work, standin):
    """Attempts that the job submits there are one run here: its state, its logs, its cancellation."""
    server = standin("pbs server")
    with (there / "home" / ".bash_profile").open("a") as profile:
        for name in server.environment.keys() - os.environ.keys() | {"PATH"}:
            profile.write(f"export {name}='{server.environment[name]}'\n")
    (work / "site_profiles" / "gadi-here.yaml").write_text(PBS_PROFILES["gadi-here"])
    (work / "count.py").write_text(COUNT.replace("LIMIT", "9"))
    words = (
        *HOST,
        "--site",
        "gadi-here",
        "--tasks-per-node",
        "1",
        "--max-attempts",
        "6",
        "-t",
        "16s",
        "--warn-before",
        "8s",
    )
    job = submit(*words, "--wait", "--", sys.executable, "count.py")
    assert job.startswith(f"{FIRST_ID}.")
    assert state(job)["word"] == "COMPLETED"
    lines = [line for line in call("logs", job).splitlines() if "attempt" not in line]
    assert lines == [*(f"[0] step {n}" for n in range(1, 10)), "[0] done"]
    assert len((Path(state(job)["folder"]) / "attempts").read_text().split()) >= 1
    waiting = submit(*words, "--", "sleep", "60")
    call("cancel", waiting)
    call("wait", waiting, code=143)
    assert state(waiting)["word"] == "CANCELLED"


@pytest.mark.parametrize("folder", ["~/own runs", "$(touch x)", 'a"b', "~other/x;id"])
def test_a_folder_runs_nothing(there, folder):
    """What a shell would run is refused."""
    assert "--remote-folder" in refused("submit", *HOST, f"--remote-folder={folder}", "--", "true")


@pytest.mark.parametrize("folder", ["~/runs", "$STORE/runs", "runs", "${STORE}/runs"])
def test_a_folder_of_ones_own(there, folder):
    """The folder is expanded there; a relative one is below the home folder."""
    with (there / "home" / ".bash_profile").open("a") as profile:
        profile.write("export STORE=$HOME\n")
    submit(*HOST, f"--remote-folder={folder}", "--", "true")
    assert [path.name.partition("-20")[0] for path in (there / "home" / "runs").iterdir()] == ["work"]


def test_the_page_tells_what_happens(there, work, monkeypatch):
    """The commands of docs/remote.md print what it shows."""
    page = (Path(__file__).parents[2] / "docs" / "remote.md").read_text()
    (block,) = re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    shutil.rmtree(work / "site_profiles")
    (work / "train.py").write_text("print('loss 0.25')\nopen('result.txt', 'w').write('0.25')\n#" + " " * 50)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = text.partition("\n")
        run = subprocess.run(["bash", "-c", f"{command} 2>&1"], capture_output=True, text=True, check=False)
        assert doctest.OutputChecker().check_output(expected, run.stdout, doctest.ELLIPSIS), f"{command}\n{run.stdout}"
