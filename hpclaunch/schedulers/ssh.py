"""Another machine, by the system's ssh and rsync: one connection for all, scripts that run there, files that travel.

Keys, agents, one-time passwords and jump hosts are ssh's business; $HPCLAUNCH_SSH is another ssh, or one with options.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from hpclaunch.errors import HpclaunchError, SchedulerError

T = TypeVar("T")
_PERSISTS = "10m"  # how long a connection stays open after its last use
_SOCKET = 60  # characters of a socket's name in its folder, of the 104 that a path may have
_LOST = 255  # ssh's own exit code
_RSYNC_LOST = (10, 12, 30, 35, _LOST)
_VANISHED = 24  # rsync's exit code if files are removed meanwhile
_BEGIN = "hpclaunch: begin"  # what comes before it is a greeting of the login shell
# No word that ssh or rsync takes for an option, or rsync for a path.
_HOST = r"(?:[\w.][\w.+@%-]*@)?\w[\w.-]*"


class LostError(SchedulerError):
    """The host is out of reach, or the connection is lost; what was started there may go on."""


def check(host: str) -> str:
    """Return `host`. Raises HpclaunchError if it cannot be one."""
    if not re.fullmatch(_HOST, host):
        raise HpclaunchError(f"--host {host}: no host; use NAME or USER@NAME, and ~/.ssh/config for its port")
    return host


def names(host: str) -> list[str]:
    """Return the names of a host: as given, and as the user's ssh configuration knows it."""
    return [host.rpartition("@")[2], *_settings(host).get("hostname", "").split()]


def run(host: str, script: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script of sh on `host`, with the environment of a login shell; again if the connection is lost.

    None of it is run if the connection breaks before it is there. Raises LostError, and subprocess.TimeoutExpired.
    """
    return _again_if_lost(host, lambda: _run(host, script, seconds))


def _run(host: str, script: str, seconds: float | None) -> subprocess.CompletedProcess[str]:
    text = f"main() {{\necho '{_BEGIN}'\n{script}\n}}\nmain\ncode=$?\n[ $code != {_LOST} ] || code=1\nexit $code\n"
    words = [*_ssh(host), "-oControlMaster=no", host, "bash -lc 'exec sh'"]
    done = subprocess.run(
        words, input=text.encode(errors="surrogateescape"), capture_output=True, check=False, timeout=seconds
    )
    stdout, stderr = (data.decode(errors="replace") for data in (done.stdout, done.stderr))
    before, begun, stdout = stdout.partition(f"{_BEGIN}\n")
    if done.returncode == _LOST or not begun:
        raise LostError(f"{host}: {_last(stderr or before) or 'the connection is lost'}")
    return subprocess.CompletedProcess(words, done.returncode, stdout, stderr)


def output(host: str, script: str) -> str:
    """Return what a script prints on `host`. Raises SchedulerError if it fails, LostError."""
    done = run(host, script)
    if done.returncode:
        raise SchedulerError(f"{host}: {_last(done.stderr) or f'exit code {done.returncode}'}")
    return done.stdout


def heredoc(text: str) -> str:
    """Return the redirection that gives `text` to the command before it."""
    if not text:
        return "</dev/null"
    end = f"EOF-{secrets.token_hex(8)}"
    return f"<<'{end}'\n{text}{'' if text.endswith(chr(10)) else chr(10)}{end}"


def rsync(host: str, *words: str, stdin: str = "", shown: bool = False) -> None:
    """Run rsync with these options and paths, `shown` on stderr; again if the connection is lost.

    Raises SchedulerError, LostError.
    """
    _again_if_lost(host, lambda: _rsync(host, words, stdin, shown))


def _rsync(host: str, words: Sequence[str], stdin: str, shown: bool) -> None:
    ssh = shlex.join([*_ssh(host), "-oControlMaster=no"])
    try:
        done = subprocess.run(
            ["rsync", "-zs", f"--rsh={ssh}", *words],
            input=stdin.encode(errors="surrogateescape"),
            stdout=2 if shown else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise HpclaunchError(f"rsync: {error.strerror}; install it here, and use a host that has it") from None
    if done.returncode not in (0, _VANISHED):
        kind = LostError if done.returncode in _RSYNC_LOST else SchedulerError
        raise kind(f"{host}: {_last(done.stderr.decode(errors='replace')) or f'rsync: exit code {done.returncode}'}")


def _again_if_lost(host: str, run: Callable[[], T]) -> T:
    """Call `run`, again if the connection is lost in it; everything that is run may be run twice."""
    _connect(host)
    for seconds in (0.5, 2, 8):
        with suppress(LostError):
            return run()
        time.sleep(seconds)
        with suppress(LostError):
            _connect(host)
    return run()


def _connect(host: str) -> None:
    """Open the connection unless it is open; ssh asks for passwords on the terminal."""
    ssh = _ssh(host)
    if subprocess.run([*ssh, "-O", "check", host], capture_output=True, check=False).returncode == 0:
        return
    with tempfile.TemporaryFile() as err:  # the connection, which stays, would keep a pipe open
        words = [*ssh, host, "true"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, check=False)
        err.seek(0)
        if done.returncode == _LOST:
            raise LostError(f"{host}: {_last(err.read().decode(errors='replace')) or 'out of reach'}")


@cache
def _ssh(host: str) -> Sequence[str]:
    """Return ssh and its options; a connection that the user's own configuration shares is used as it is."""
    words = [*_program(), "-oRemoteCommand=none", "-oServerAliveInterval=10", "-oConnectTimeout=20"]
    if _settings(host).get("controlpath", "none") == "none" and (folder := _sockets()):
        words += ["-oControlMaster=auto", f"-oControlPersist={_PERSISTS}", f"-oControlPath={folder}/%C"]
    return words


def _program() -> list[str]:
    return shlex.split(os.environ.get("HPCLAUNCH_SSH", "")) or ["ssh"]


@cache
def _settings(host: str) -> dict[str, str]:
    """Return what ssh's configuration says of a host."""
    try:
        done = subprocess.run([*_program(), "-G", host], capture_output=True, text=True, check=False)
    except OSError as error:
        raise HpclaunchError(f"{_program()[0]}: {error.strerror}") from None
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def _sockets() -> Path | None:
    """Return a folder of the user's only, for the connections' sockets, or None if there is none with a short name."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir()):
        folder = Path(parent, f"hpclaunch-{os.getuid()}")
        if not folder.is_absolute() or len(str(folder)) + _SOCKET > 104:
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
    return None


def _last(text: str) -> str:
    """Return the last line, of ssh rather than of rsync, which only says that it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(reversed([line for line in lines if not line.startswith("rsync")] or lines), "")
