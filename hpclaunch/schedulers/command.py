"""Run a scheduler's command, here without a shell, or on another host; if it fails, the error has its own words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpclaunch.errors import SchedulerError

if TYPE_CHECKING:
    import subprocess

STATE_SECONDS = 60  # for an answer about states: one scheduler that hangs must not block the others
# Variables of the job at hand, which sbatch and `qsub -V` would take for requests or hand to a job submitted from it.
_OF_A_JOB = r"(SLURMD?|SRUN|TORCHELASTIC)_(?!CONF$|CLUSTERS$)|SBATCH_(CPU|MEM)_BIND|PBS_ARRAY_|HPCLAUNCH_(JOB|ATTEMPT)$"
ONCE = ".hpclaunch"  # the folder, below that of submission on another host, of what is run once
_NO_ANSWER = 253
# Start the command that has the number $n unless it was started before, apart from the connection; wait for its end.
_ONCE = """mkdir -p {once} && cd {once} || exit
n={number}
[ -e "in$n" ] || {{ cat >"in$n.$$" && mv "in$n.$$" "in$n"; }} {stdin}
setsid sh -c 'mkdir "lock$0" 2>/dev/null || exit
    (cd .. && eval "$1") <"in$0" >"out$0" 2>"err$0"
    echo $? >"code$0.new"; mv "code$0.new" "code$0"' "$n" {command} </dev/null >/dev/null 2>&1 &
i=0
until [ -e "code$n" ]; do [ $((i += 1)) -lt 300 ] || exit {no_answer}; sleep 0.2; done
cat "out$n"; cat "err$n" >&2
exit "$(cat "code$n")\""""


class _Place(NamedTuple):
    """Where commands are run: on `host`, in a folder or at home, each one time if there are `numbers`."""

    host: str
    folder: str
    variables: Mapping[str, str]
    numbers: Iterator[int] | None


_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)


@contextmanager
def there(
    host: str, folder: str = "", once: bool = False, variables: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run commands on `host`, if it is one, from `folder`, with `variables` in the environment.

    With `once`, each command that is the first, second ... in such a context for this folder is run one time, however
    often the connection is lost and the same is tried again: later tries get the answer that the first one had.
    """
    token = _PLACE.set(_Place(host, folder, variables or {}, count(1) if once else None) if host else None)
    try:
        yield
    finally:
        _PLACE.reset(token)


def current_folder() -> str:
    """Return the folder that commands are run from."""
    place = _PLACE.get()
    return place.folder if place else str(Path.cwd())


def user_id() -> str:
    """Return the user's number where commands are run."""
    place = _PLACE.get()
    return _user_there(place.host) if place else str(os.getuid())


@cache
def _user_there(_host: str) -> str:
    return call(["id", "-u"]).stdout.strip()


def call(
    words: Sequence[str],
    stdin: str = "",
    fine: Container[int] = (0,),
    folder: Path | None = None,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command from `folder` or the current one, with `variables` added to the environment.

    Variables of the job at hand are left out. Raises SchedulerError with its message if its exit code is not in `fine`,
    or if it is not found, cannot be started or gives no answer in so many seconds.
    """
    import subprocess  # not before there is a command to run: start-up time counts

    try:
        run = _run_there if _PLACE.get() else _run_here
        done = run(words, stdin, folder, seconds, variables or {})
    except FileNotFoundError:
        raise SchedulerError(f"{words[0]}: not found; is this a login node of the site?") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{words[0]}: no answer after {seconds:g} s; its daemon may be down") from None
    except OSError as error:
        raise SchedulerError(f"{words[0]}: {error.strerror}") from None
    if done.returncode not in fine:
        raise SchedulerError(
            (done.stderr or done.stdout).strip() or f"{words[0]} ended with exit code {done.returncode}"
        )
    return done


def _run_here(
    words: Sequence[str], stdin: str, folder: Path | None, seconds: float | None, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    import subprocess

    inside = not {"SLURM_JOB_ID", "PBS_JOBID"}.isdisjoint(os.environ)
    outside = {name: value for name, value in os.environ.items() if not (inside and re.match(_OF_A_JOB, name))}
    done = subprocess.run(
        list(words),
        input=stdin.encode(errors="surrogateescape"),
        capture_output=True,
        check=False,
        cwd=folder,
        timeout=seconds,
        env={**outside, **variables},
    )
    stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(words, done.returncode, stdout, stderr)


def _run_there(
    words: Sequence[str], stdin: str, folder: Path | None, seconds: float | None, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the command on the host of the context; the values of variables are in no list of processes."""
    from hpclaunch.schedulers import ssh

    place = _PLACE.get()
    assert place  # noqa: S101 - of `call`
    own = {**place.variables, **variables}
    lines = [f"cd {shlex.quote(str(folder or place.folder))} || exit"] if folder or place.folder else []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
    command = shlex.join(words)
    if place.numbers:
        known = {"once": ONCE, "number": next(place.numbers), "no_answer": _NO_ANSWER}
        lines += [_ONCE.format(command=shlex.quote(command), stdin=ssh.heredoc(stdin), **known)]
    else:
        lines += [f"{command} {ssh.heredoc(stdin)}"]
    done = ssh.run(place.host, "\n".join(lines), seconds)
    if place.numbers and done.returncode == _NO_ANSWER:
        raise ssh.LostError(f"{place.host}: {words[0]} was started there, and has not answered yet")
    if done.returncode == 127:
        raise SchedulerError(f"{words[0]}: not found on {place.host}; is it a login node of the site?")
    return done
