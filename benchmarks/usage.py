"""What the samples of a job script cost: the share of a core that they take beside eight programs of 60 threads.

python benchmarks/usage.py [SECONDS]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=({seconds},)).start()"
TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(process: int) -> float:
    """Return the time of a process and its ended children, in seconds of a core."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def main() -> None:
    """Take the function from a script, and print what it costs."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else 120
    words = ["render", "--quiet", "--site", "slurm", "--nodes", "2", "--", "true"]
    script = subprocess.run([sys.executable, "-m", "hpclaunch", *words], capture_output=True, text=True, check=True)
    found = re.search(r"^sample\(\).*?^}$", script.stdout, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit("no function named sample in the script")
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", PROGRAM.format(seconds=seconds + 5)]
        ranks = [subprocess.Popen(program) for _ in range(8)]
        time.sleep(3)
        own = subprocess.Popen(
            ["bash", "-c", f'{found[0]}\nsample "$PPID"'],
            env={**os.environ, "HPCLAUNCH_USAGE": f"{folder}/node-0.usage"},
            stdin=subprocess.PIPE,
        )
        time.sleep(1)
        before = seconds_of(own.pid)
        time.sleep(seconds)
        used = seconds_of(own.pid)
        own.communicate()
        for rank in ranks:
            rank.terminate()
        lines = Path(folder, "node-0.usage").read_text().splitlines()
    print(f"{len(lines) - 1} samples, the last: {lines[-1]}")
    print(f"first sample {before:.3f} s; then {(used - before) / seconds:.4%} of a core over {seconds:g} s")


if __name__ == "__main__":
    main()
