"""Another machine, by the system's ssh and rsync over one connection; what runs there is in templates/remote.sh.

Keys, agents, one-time passwords and jump hosts are ssh's business.
"""

import os
import re
import secrets
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

from hpclaunch.errors import HpclaunchError, SchedulerError
from hpclaunch.paths import shipped
from hpclaunch.schedulers.command import ELSEWHERE

Done = subprocess.CompletedProcess[bytes]
_LOST = {"ssh": (255,), "rsync": (10, 12, 30, 35, 255)}  # exit codes of a lost connection, or of none
_NOT_MADE = rb"(?m)^ssh: |Permission denied|verification failed"
_VANISHED = 24  # rsync's exit code if files are removed meanwhile
_BEGIN = "hpclaunch: begin"  # what comes before it is a greeting of the login shell's files
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
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    given = f"<<'{end}'\n{stdin.removesuffix(chr(10))}\n{end}\n" if stdin else "</dev/null\n"
    functions = (shipped("templates") / "remote.sh").read_text()
    text = f"{exports}{functions}main() {{ {shlex.join(words)} {given}}}\necho '{_BEGIN}'; main\n"
    done = _tried(host, [*_ssh(host), host, "bash -lc 'exec bash'"], text, seconds)
    greeting, begun, stdout = done.stdout.partition(f"{_BEGIN}\n".encode())
    if not begun:
        raise SchedulerError(f"{host}: no shell there: {_last(done.stderr or greeting)}")
    return Done(words, done.returncode, stdout, done.stderr)


@contextmanager
def there(host: str, folder: str = "", once: bool = False, variables: Mapping[str, str] = {}) -> Iterator[None]:
    """Run schedulers' commands on `host` from `folder`, with `variables` in the environment.

    With `once`, each that is the first, second ... in such a context for this folder is run one time, however often the
    same is tried again: later tries get the answer that the first one had.
    """
    numbers = count(1)

    def run_there(words: Sequence[str], stdin: str, more: Mapping[str, str], seconds: float | None) -> Done:
        at = ["once", folder, str(next(numbers))] if once else ["at", folder]
        return run(host, [*at, *words], stdin, {**variables, **more}, seconds)

    token = ELSEWHERE.set(run_there)
    try:
        yield
    finally:
        ELSEWHERE.reset(token)


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
    done = _tried(host, ["rsync", "-zs", f"--rsh={shlex.join(_ssh(host))}", *words], stdin, shown=shown)
    if done.returncode not in (0, _VANISHED):
        raise SchedulerError(f"{host}: {_last(done.stderr)}")


def _tried(host: str, words: list[str], stdin: str = "", seconds: float | None = None, shown: bool = False) -> Done:
    """Call ssh or rsync, again if the connection is lost. Files take the output: one that stays would hold a pipe."""
    data = stdin.encode(errors="surrogateescape")
    for pause in (0.5, 2, 8, 0):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            stdout = 2 if shown else out
            try:
                run = subprocess.run(words, input=data, stdout=stdout, stderr=err, timeout=seconds, check=False)
            except FileNotFoundError:
                raise HpclaunchError(f"{words[0]}: not found; install it to use other hosts") from None
            out.seek(0)
            err.seek(0)
            done = Done(words, run.returncode, out.read(), err.read())
        if done.returncode not in _LOST[words[0]]:
            return done
        if pause == 0.5 and re.search(_NOT_MADE, done.stderr):
            break
        time.sleep(pause)
    raise LostError(f"{host}: {_last(done.stderr) or 'the connection is lost'}")


@cache
def _ssh(host: str) -> list[str]:
    """Return ssh with its options; a connection that the user's own options share is left to them."""
    words = ["ssh", "-oRemoteCommand=none", "-oServerAliveInterval=10", "-oConnectTimeout=20"]
    # Short, as a socket's name has at most 104 characters; %C takes 40 of them, and ssh 17 more for a moment.
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    folder = (runtime if runtime.is_absolute() and runtime.is_dir() else Path("/tmp")) / f"hpclaunch-{os.getuid()}"  # noqa: S108 - it must be ours
    if settings(host).get("controlpath", "none") == "none":
        folder.mkdir(mode=0o700, exist_ok=True)
        if (found := folder.lstat()).st_uid == os.getuid() and not found.st_mode & 0o077:
            words += ["-oControlMaster=auto", "-oControlPersist=10m", f"-oControlPath={folder}/%C"]
    return words


@cache
def settings(host: str) -> dict[str, str]:
    """Return what the user's ssh configuration says of a host. Raises HpclaunchError if it cannot be one."""
    if not re.fullmatch(_HOST, host):
        raise HpclaunchError(f"--host {host}: no host; use NAME or USER@NAME, and ~/.ssh/config for its port")
    printed = _tried(host, ["ssh", "-G", host]).stdout.decode(errors="replace")
    return dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)


def _last(text: bytes) -> str:
    """Return the last line, of ssh rather than of rsync, which only says that it failed."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return next(reversed([line for line in lines if not line.startswith("rsync")] or lines), "")
