"""Runs on a real Slurm behind a real sshd, from a machine without Slurm, over connections that break."""

from __future__ import annotations

import os
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import NO_SCHEDULER, PATH, call, program, start, state, submit, wait_until

SSHD = Path("/usr/sbin/sshd")
HOST = ("--host", "cluster", "--tasks-per-node", "1", "--cpus-per-task", "1")
pytestmark = pytest.mark.skipif(not SSHD.exists(), reason="sshd is not installed (Debian: openssh-server rsync)")

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM yes
PasswordAuthentication no
MaxStartups 100
PidFile none
SetEnv SLURM_CONF={conf}
"""
USER = """
Host cluster
    HostName 127.0.0.1
    Port {port}
    User alice
    IdentityFile {folder}/user
    UserKnownHostsFile {folder}/known
    StrictHostKeyChecking accept-new
"""


class Server:
    """An sshd, whose connections break when a test says so."""

    def __init__(self, folder: Path, conf: str) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder, conf=conf))
        (folder / "config").write_text(USER.format(port=port, folder=folder))
        Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
        self.sockets = folder / f"hpclaunch-{os.getuid()}"

    def cut(self) -> None:
        """Kill both ends of each connection, but nothing that was started over them."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                name = (path / "cmdline").read_bytes().decode(errors="replace")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            ours = str(self.sockets) in name.partition("\0")[0] or (name.startswith("sshd: ") and parent != 1)
            if ours and int(path.name) != self.process.pid:
                os.kill(int(path.name), signal.SIGKILL)


@pytest.fixture
def server(slurm, slurm_cluster, monkeypatch, tmp_path) -> Iterator[Server]:
    """A machine without Slurm, its ssh configuration, and the login node."""
    folder = Path(tempfile.mkdtemp(prefix="ssh-"))  # pytest's is too long for a socket
    folder.chmod(0o755)
    server = Server(folder, slurm_cluster)
    # ssh takes its folder from the passwd file, and not from HOME.
    program(tmp_path / "bin" / "ssh", f'exec /usr/bin/ssh -F {folder}/config "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{NO_SCHEDULER}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("SLURM_CONF")
    yield server
    server.cut()
    server.process.kill()
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("SLURM_CONF", slurm_cluster)
    subprocess.run(["scancel", "--user=alice"], check=False)
    shutil.rmtree(folder)
    shutil.rmtree("/home/alice/hpclaunch", ignore_errors=True)


def queued(name: str, conf: str) -> list[str]:
    """Return the ids that Slurm's accounting has for jobs of this name."""
    words = [
        "/usr/bin/sacct",
        "--user=alice",
        f"--name={name}",
        "--allocations",
        "--noheader",
        "--parsable2",
        "-oJobID",
    ]
    return subprocess.check_output(words, env=os.environ | {"SLURM_CONF": conf}, text=True).split()


def test_four_commands_from_a_laptop(server, work):
    """Submit, wait, read the logs, fetch: on two nodes, as alice, with nothing of ours installed there."""
    (work / "train.sh").write_text("echo $RANK of $WORLD_SIZE on $(id -un); echo $RANK >result-$RANK.txt\n")
    job = submit("--host", "cluster", "--nodes", "2", "--tasks-per-node", "1", "--", "bash", "train.sh")
    assert call("wait", job) == ""
    assert call("logs", job).splitlines() == ["[0] 0 of 2 on alice", "[1] 1 of 2 on alice"]
    call("fetch", job, "result-*")
    assert [(work / f"result-{rank}.txt").read_text() for rank in range(2)] == ["0\n", "1\n"]
    row = state(job)
    assert (row["word"], row["host"]) == ("COMPLETED", "cluster")
    assert Path(row["remote"]).is_relative_to("/home/alice/hpclaunch")


def test_failure_cancel_and_exit_codes(server, work):
    """The exit code comes back, `why` has the rank's last words, a refusal is Slurm's, and cancel cancels."""
    job = submit(*HOST, "--wait", "--", "bash", "-c", "echo last words; exit 7", code=7)
    assert "last words" in call("why", job)
    process = start("submit", *HOST, "--directive=--nodelist=nowhere", "--", "true")
    assert "Invalid node name" in process.communicate(timeout=60)[1]
    assert process.returncode == 3
    job = submit(*HOST, "--", "sleep", "100")
    wait_until(lambda: state(job)["word"] == "RUNNING")
    call("cancel", job)
    call("wait", job, code=1)
    assert state(job)["word"] == "CANCELLED"


def test_a_passphrase_is_asked_for_once_on_the_terminal(server, work):
    """A passphrase is asked for on the terminal, here for both hosts of the way; then it stays open."""
    subprocess.run(["ssh-keygen", "-qp", "-N", "open sesame", "-f", server.folder / "user"], check=True)
    config = (server.folder / "config").read_text()
    gate = config.replace("Host cluster", "Host gate")
    (server.folder / "config").write_text(f"{gate}{config}    ProxyJump gate\n")
    terminal, asked = pty.fork()
    if not terminal:
        os.execv(sys.executable, [sys.executable, "-m", "hpclaunch", "submit", *HOST, "--wait", "--", "true"])
    printed = b""
    with suppress(OSError):  # its end
        while data := os.read(asked, 1024):
            printed += data
            if data.endswith(b"': "):
                os.write(asked, b"open sesame\n")
    assert os.waitpid(terminal, 0)[1] == 0, printed.decode()
    assert printed.count(b"Enter passphrase") == 2
    assert "COMPLETED" in call("status")


@pytest.mark.slow
def test_a_job_that_goes_on_is_one_run(server, work):
    """Further attempts are started there; `wait` and the logs have them all."""
    code = 'echo attempt $HPCLAUNCH_ATTEMPT; [ $HPCLAUNCH_ATTEMPT = 2 ] || { trap "exit 75" USR1; sleep 100 & wait; }'
    words = ("--max-attempts", "2", "-t", "2m", "--warn-before", "90s", "--wait")
    job = submit(*HOST, *words, "--", "bash", "-c", code, seconds=300)
    lines = [line for line in call("logs", job).splitlines() if "---" not in line]
    assert lines == ["[0] attempt 1", "[0] attempt 2"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_connection_cut_at_any_moment(server, work, slurm_cluster, seed):
    """Cut while it submits and while it follows: one job, its id, and every line of its log once."""
    moment = random.Random(seed)  # noqa: S311 - no secret
    name = f"cut-{seed}-{os.getpid()}"
    (work / "data").write_bytes(os.urandom(2_000_000))
    lines = "for n in $(seq 20); do echo line $n; sleep 0.4; done"
    process = start("submit", *HOST, "--job-name", name, "--", "bash", "-c", lines)
    time.sleep(moment.uniform(0.3, 1.5))
    server.cut()
    stdout, stderr = process.communicate(timeout=120)
    if process.returncode == 3:  # the connection was not there again in time
        (resume,) = re.findall(r"--resume (\S+)", stderr)
        stdout = call("submit", "--resume", resume)
    assert process.returncode in (0, 3), stderr
    job = stdout.strip()
    process = start("logs", "-f", job)
    for _ in range(2):
        time.sleep(moment.uniform(0.3, 5))
        server.cut()
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stdout.splitlines() == [f"[0] line {n}" for n in range(1, 21)]
    assert queued(name, slurm_cluster) == [job]
    assert state(job)["word"] == "COMPLETED"


@pytest.mark.slow
def test_a_large_result_goes_on_where_it_was(server, work):
    """A transfer that is cut keeps what has come, and ends with the whole file."""
    command = "head -c 300000000 /dev/urandom >big.bin; sha256sum big.bin"
    job = submit(*HOST, "--wait", "--", "bash", "-c", command)
    process = start("fetch", job, "big.bin")
    wait_until(lambda: any(path.stat().st_size > 50_000_000 for path in work.glob(".big.bin.*")))
    server.cut()
    wait_until(lambda: list(work.glob(".hpclaunch-partial/big.bin")))
    assert process.communicate(timeout=100)[0].split()[-1] == "big.bin"
    assert f"[0] {subprocess.check_output(['sha256sum', 'big.bin'], text=True)}" == call("logs", job)
