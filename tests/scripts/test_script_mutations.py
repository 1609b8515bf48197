"""Whatever a file holds, checking it ends in words: no traceback, and no new script that bash cannot read."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpclaunch.job.directives.read import words
from hpclaunch.profile import search
from hpclaunch.scripts.examine import examine

CORPUS = [path.read_text() for path in sorted((Path(__file__).parent / "corpus").glob("*.sh"))]
SITES = {name: search.load(name) for name in ("gadi", "jean-zay", "slurm", "pbs")}
PIECES = [
    *"$'\"`(){}#\\\n\t\r;&|<>=,:- %@*0é\x1b",
    *sorted(words("-- -1 999999999999 $( ${ $(( <x> $X [[ )) :: << gpu:")),
    *[f"{word} " for word in sorted(words("#PBS #SBATCH -l if for do case srun mpirun pbsdsh torchrun bash ssh"))],
    *[f"{word} " for word in sorted(words("export cd accelerate deepspeed env function python module"))],
    *sorted(words("select= nodes= mem= walltime= then fi done esac wait --nproc_per_node=")),
    "<<EOF\n",
    "bash -c '",
]
EDITS = st.lists(
    st.tuples(st.sampled_from(["insert", "cut", "double", "swap", "move"]), st.integers(0, 10**6), st.integers(0, 40),
              st.sampled_from(PIECES)),
    min_size=1, max_size=8,
)  # fmt: skip


def mutate(text: str, edits: list[tuple[str, int, int, str]]) -> str:
    for what, where, length, piece in edits:
        at = where % (len(text) + 1)
        if what == "insert":
            text = text[:at] + piece + text[at:]
        elif what == "cut":
            text = text[:at] + text[at + length :]
        elif what == "double":
            text = text[:at] + text[at : at + length] + text[at:]
        elif what == "swap":
            text = text[:at] + piece + text[at + length :]
        else:
            lines = text.split("\n")
            lines.insert(length % (len(lines) + 1), lines.pop(at % len(lines)))
            text = "\n".join(lines)
    return text


def survive(text: str, profile: search.Profile) -> None:
    report = examine(text, profile)
    count = len(report.lines)
    assert all(0 <= one.line <= count and one.message and one.message.isprintable() for one in report.diagnostics)


@given(st.sampled_from(CORPUS), st.sampled_from(sorted(SITES)), EDITS)
def test_a_mutated_script_never_gives_a_traceback(text, name, edits):
    """Cut, doubled, moved and strange pieces are told of in printable words, at lines that are there."""
    survive(mutate(text, edits), SITES[name])


@given(st.text(max_size=300), st.sampled_from(sorted(SITES)))
def test_any_text_is_survived(text, name):
    """A file with anything in it is read to its end."""
    survive("#!/bin/bash\n#PBS -l ncpus=1\n" + text, SITES[name])
    survive("#SBATCH -N 1 " + text, SITES[name])


def test_characters_far_beyond_ascii_end_no_process():
    """Emoji and private characters where the library looks for digits: their words are read like any other."""
    code = """
from hpclaunch.scripts import shell
for number in range(0x80, 0x110000, 1999):
    if not 0xD800 <= number < 0xE000:
        shell.read("{" + chr(number))
assert shell.read("é😀 --x=😀").commands[0].words[0].name == "é😀"
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr


LIMIT = 5.0  # seconds of one core; the slowest takes a twentieth of it
OPEN = ("(", "$(", '"$(', "{ ", "if ", "<<E\n")  # never closed; five thousand quotes are


@pytest.mark.parametrize(
    "piece", ["(", "$(", '"$(', "{ ", "if ", "<<E\n", "'", "#SBATCH -", "a=b ", "srun ", "bash -c '"]
)
def test_a_deep_or_long_file_is_read_in_time(piece):
    """A hundred thousand letters of the same kind end in a message, not in a stack overflow or a night of work."""
    for profile in (SITES["gadi"], SITES["jean-zay"]):
        start = time.process_time()
        report = examine("#!/bin/bash\n#SBATCH -N1\n#PBS -l ncpus=1\n" + piece * 5000 + "\n", profile)
        assert time.process_time() - start < LIMIT
        assert ("shell" in {one.check for one in report.diagnostics}) == (piece in OPEN)
        assert report.asked is not None
        assert report.asked.nodes == 1
        assert all(1 <= one.line <= len(report.lines) for one in report.diagnostics if one.line)


@pytest.mark.parametrize("number", ["9" * 5000, "\u0663", "\u00b2", "-1", "1e9", "0"])
def test_strange_numbers_are_told(number):
    """A number that is none, or beyond all measure, is a message wherever it stands."""
    for value in ("-N{}", "--ntasks={}", "--gres=gpu:{}", "-t {}", "--mem={}G", "-c {}"):
        survive(f"#!/bin/bash\n#SBATCH {value.format(number)}\nsrun python x.py\n", SITES["jean-zay"])
    for value in ("ncpus={}", "select={}:ncpus=1", "select=1:ncpus={}", "nodes={}:ppn=4", "mem={}GB", "walltime={}"):
        survive(f"#!/bin/bash\n#PBS -l {value.format(number)}\npython x.py\n", SITES["gadi"])
    body = f"srun -n {number} torchrun --nnodes={number} --nproc_per_node {number} x.py --devices {number}"
    survive(f"#!/bin/bash\n#SBATCH -N 1\n{body}\n", SITES["jean-zay"])
    survive(f"#!/bin/bash\n#PBS -l ncpus=1\nmpirun -np {number} --map-by ppr:{number}:node x.py\n", SITES["gadi"])
