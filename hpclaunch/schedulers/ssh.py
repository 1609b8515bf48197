"""Another machine, by the system's ssh and rsync over one connection; what runs there is in templates/remote.sh.

Keys, agents, one-time passwords and jump hosts are ssh's business; $HPCLAUNCH_SSH is another ssh, or one with options.
"""

import os
import re
import secrets
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.paths import shipped

Done = subprocess.CompletedProcess[bytes]
_LOST = 255  # ssh's own exit code
_RSYNC_LOST = (10, 12, 30, 35, _LOST)
_VANISHED = 24  # rsync's exit code if files are removed meanwhile
_BEGIN = b"hpclaunch: begin\n"  # what comes before it is a greeting of the login shell's files
# Nothing that ssh or rsync takes for an option, or rsync for a path.
_HOST = r"(?:[\w.][\w.+@%-]*@)?\w[\w.-]*"


class LostError(SchedulerError):
    """The host is out of reach, or the connection is lost; what was started there may go on."""


def run(
    host: str, words: Sequence[str], stdin: str, variables: Mapping[str, str], seconds: float | None = None
) -> Done:
    """Run a function of remote.sh in a login shell on `host`; again if the connection is lost.

    All of it stands in the shell's input, and nothing is run if the connection is lost before the input's end. Raises
    LostError, and subprocess.TimeoutExpired.
    """
    end = f"EOF-{secrets.token_hex(8)}"
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    functions = (shipped("templates") / "remote.sh").read_text()
    given = f"<<'{end}'\n{stdin.removesuffix(chr(10))}\n{end}" if stdin else "</dev/null"
    lines = [
        *exports,
        functions,
        f"main() {{ {shlex.join(words)} {given}\n}}",
        f"echo '{_BEGIN.decode()[:-1]}'; main\n",
    ]
    text = "\n".join(lines).encode(errors="surrogateescape")
    done = _tried(host, lambda ssh: _start([*ssh, host, "bash -lc 'exec bash'"], text, seconds), (_LOST,))
    greeting, begun, stdout = done.stdout.partition(_BEGIN)
    if not begun:
        raise SchedulerError(f"{host}: no shell there: {_last(done.stderr or greeting)}")
    return Done(words, done.returncode, stdout, done.stderr)


def answer(host: str, *words: str) -> str:
    """Return what a function of remote.sh prints. Raises SchedulerError if it fails, LostError."""
    done = run(host, words, "", {})
    if done.returncode:
        raise SchedulerError(f"{host}: {_last(done.stderr) or f'exit code {done.returncode}'}")
    return done.stdout.decode(errors="surrogateescape")


def rsync(host: str, *words: str, stdin: str = "", shown: bool = False) -> None:
    """Run rsync with these options and paths, `shown` on stderr; again if the connection is lost.

    Raises SchedulerError, LostError.
    """
    data, out = stdin.encode(errors="surrogateescape"), 2 if shown else subprocess.PIPE
    options = ["rsync", "-zs"]
    done = _tried(
        host, lambda ssh: _start([*options, f"--rsh={shlex.join(ssh)}", *words], data, stdout=out), _RSYNC_LOST
    )
    if done.returncode not in (0, _VANISHED):
        raise SchedulerError(f"{host}: {_last(done.stderr)}")


def _tried(host: str, attempt: Callable[[list[str]], Done], lost: Container[int]) -> Done:
    """Return what an attempt with ssh's words comes to, if the connection is lost that of a later one."""
    reason = ""
    for seconds in (0, 0.5, 2, 8):
        time.sleep(seconds)
        if reason := _connect(host):
            if not seconds:
                break
        elif (done := attempt(_ssh(host)[0])).returncode not in lost:
            return done
        else:
            reason = _last(done.stderr)
    raise LostError(f"{host}: {reason or 'the connection is lost'}")


def _connect(host: str) -> str:
    """Open the connection unless it is open, and return why it cannot be; ssh asks for passwords on the terminal."""
    ssh, shared = _ssh(host)
    if _start([*ssh, "-O", "check", host]).returncode == 0:
        return ""
    with tempfile.TemporaryFile() as err:  # the connection, which stays, would keep a pipe open
        code = _start([*ssh, *shared, host, "true"], stdout=err, stderr=err).returncode
        err.seek(0)
        return (_last(err.read()) or "out of reach") if code == _LOST else ""


@cache
def _ssh(host: str) -> tuple[list[str], list[str]]:
    """Return ssh with its options, and those that open the connection, if it is not shared by the user's own ones."""
    words = [*_program(), "-oRemoteCommand=none", "-oServerAliveInterval=10", "-oConnectTimeout=20"]
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"hpclaunch-{os.getuid()}")
    if settings(host).get("controlpath", "none") != "none":
        return words, []
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        return words, []
    return [*words, f"-oControlPath={folder}/%C"], ["-oControlMaster=auto", "-oControlPersist=10m"]


@cache
def settings(host: str) -> dict[str, str]:
    """Return what the user's ssh configuration says of a host. Raises HpclaunchError if it cannot be one."""
    if not re.fullmatch(_HOST, host):
        raise HpclaunchError(f"--host {host}: no host; use NAME or USER@NAME, and ~/.ssh/config for its port")
    printed = _start([*_program(), "-G", host]).stdout.decode(errors="replace")
    return dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)


def _program() -> list[str]:
    return shlex.split(os.environ.get("HPCLAUNCH_SSH", "")) or ["ssh"]


def _start(
    words: list[str],
    stdin: bytes = b"",
    seconds: float | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
) -> Done:
    try:
        return subprocess.run(words, input=stdin, stdout=stdout, stderr=stderr, timeout=seconds, check=False)
    except FileNotFoundError:
        raise HpclaunchError(f"{words[0]}: not found; install it to use other hosts") from None


def _last(text: bytes) -> str:
    """Return the last line, of ssh rather than of rsync, which only says that it failed."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return next(reversed([line for line in lines if not line.startswith("rsync")] or lines), "")
