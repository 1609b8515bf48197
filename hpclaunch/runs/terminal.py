"""The terminal of `hpclaunch run --debug-rank`: a pty for one rank, whose other end is the user's terminal."""

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
from typing import Any

from msgspec import structs

from hpclaunch.errors import HpclaunchError
from hpclaunch.job.plan import Plan

VARIABLE = "HPCLAUNCH_TERMINAL"  # the name of the pty's slave, for the job script
_SECONDS = 0.1  # between two looks at whether the script has ended
_INTERRUPT = b"\x03"  # Ctrl-C


def for_rank(plan: Plan, rank: int) -> Plan:
    """Return the plan that gives `rank` the terminal. Raises HpclaunchError if that cannot be."""
    step = plan.tasks_per_node if plan.launcher == "lightning" else 1
    ranks = range(0, plan.world_size, step)
    if not plan.scheduler.here:
        raise HpclaunchError(f"--debug-rank {rank}: the job of {plan.name} has no terminal; leave out --site")
    if rank not in ranks:
        why = " (lightning starts one process a node, which is its first rank)" if step > 1 else ""
        raise HpclaunchError(f"--debug-rank {rank}: no such rank; use {', '.join(map(str, ranks[:8]))}{why}")
    if not sys.stdin.isatty():
        raise HpclaunchError(f"--debug-rank {rank}: stdin is not a terminal; run it in one")
    return structs.replace(plan, debug_rank=rank)


def lend() -> str:
    """Return the name of a new pty's slave, in a new process; this one copies until that ends, and ends as it does."""
    master, slave = os.openpty()
    before = termios.tcgetattr(0)
    child = os.fork()
    if child == 0:
        os.close(master)
        return os.ttyname(slave)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, _: os.kill(child, number))
    _resize(master)
    signal.signal(signal.SIGWINCH, lambda *_: _resize(master))
    raw: list[Any] = termios.tcgetattr(0)
    raw[0] &= ~(termios.ICRNL | termios.IXON)
    raw[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    try:
        termios.tcsetattr(0, termios.TCSADRAIN, raw)
        code = os.waitstatus_to_exitcode(_copy(master, child))
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
    raise SystemExit(code if code >= 0 else 128 - code)


def _resize(master: int) -> None:
    """Give the pty the size of the user's terminal."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))


def _copy(master: int, child: int) -> int:
    """Copy between the user's terminal and the pty until `child` has ended; return its status."""
    sources, ended, status = [0, master], 0, 0
    while True:
        ready = select.select(sources, [], [], 0 if ended else _SECONDS)[0]
        if master in ready:
            os.write(1, os.read(master, 65536))
        elif ended:
            return status
        if 0 in ready:
            data = b""
            with contextlib.suppress(OSError):  # the terminal was closed
                data = os.read(0, 1024)
            if _INTERRUPT in data and not os.tcgetpgrp(master):  # no rank has the pty: it is for the script
                os.kill(child, signal.SIGINT)
            elif data:
                os.write(master, data)
            else:
                sources.remove(0)
        if not ended:
            ended, status = os.waitpid(child, os.WNOHANG)
