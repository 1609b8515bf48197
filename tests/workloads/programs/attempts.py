"""python attempts.py KILLS RANKS SECONDS PROGRAM [ARGUMENT...]: train once whole, once killed again and again.

Each attempt is what a job script makes of one: ranks with the launch contract's variables, warned by SIGUSR1 or SIGTERM
after a random number of steps, and started again as long as they leave with 75. torch is imported once, for all: ranks
are forks. Prints how the attempts ended and what the last line of rank 0 was, as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

for name in ("pytorch_lightning", "numpy", "torch.utils.data", *os.environ.get("PRELOAD", "").split()):
    if importlib.util.find_spec(name):
        __import__(name)


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def start(words: list[str], folder: Path, ranks: int, attempt: int) -> list[int]:
    """Start the ranks of an attempt and return their ids."""
    pids, port = [], free_port()
    for rank in range(ranks):
        if pid := os.fork():
            pids.append(pid)
            continue
        with (folder / f"rank-{rank}.log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "NODE_RANK": 0}
        places |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "HPCLAUNCH_ATTEMPT": attempt}
        os.environ.update({name: str(value) for name, value in places.items()}, HPCLAUNCH_RUN_DIR=str(folder))
        code = 0
        sys.argv = words
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return pids


def steps(log: Path) -> int:
    return log.read_text().count("step ") if log.exists() else 0


def train(words: list[str], folder: Path, ranks: int, kills: int, until: int) -> dict[str, object]:
    """Train to the end; an attempt is killed within `until` steps."""
    folder.mkdir()
    dice, log = random.Random(kills), folder / "rank-0.log"
    codes: list[list[int]] = []
    ends = (signal.SIGKILL,) if os.environ.get("KIND") == "slow" else (signal.SIGUSR1, signal.SIGTERM)
    while not codes or codes[-1] in ([75] * ranks, [-signal.SIGKILL] * ranks):
        before, pids = steps(log), start(words, folder, ranks, len(codes) + 1)
        if len(codes) < kills:
            last = before + dice.randint(1, until)
            while steps(log) < last and os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                time.sleep(0.001)
            for pid in pids if dice.random() < 0.7 else pids[:1]:
                os.kill(pid, dice.choice(ends))
        codes.append([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
    return {"codes": [code for code, *_ in codes], "last": codes[-1], "end": log.read_text().splitlines()[-1]}


if __name__ == "__main__":
    kills, ranks, until = map(int, sys.argv[1:4])
    words = sys.argv[4:]
    whole = train(words, Path("whole"), ranks, 0, 0)
    killed = train(words, Path("killed"), ranks, kills, until)
    print(json.dumps({"whole": whole, "killed": killed}))
