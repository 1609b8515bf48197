"""Whatever people ask for and write into profiles: a sentence or a sound script, never a traceback."""

import os
import re
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hpclaunch.errors import HpclaunchError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.plan import Plan
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.paths import search_path
from hpclaunch.profile import search, types

PROFILE_NAMES = ["gadi", "jean-zay", "local", "pbs", "slurm"]
TEXTS = {name: (search_path("site_profiles")[-1] / f"{name}.yaml").read_text() for name in PROFILE_NAMES}

any_text = st.one_of(
    st.sampled_from(
        [
            "$(touch made)",
            "`id`",
            "'; id #",
            'a"b',
            "x\n#SBATCH --wrap=id",
            "\\",
            "*",
            "~",
            "{a,b}",
            "!!",
            "",
            "-x",
            "\udcff",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text("ab $'\"`\\#;&|<>(){}[]*?!~=%\n\t", max_size=12),
)


def mostly(likely: st.SearchStrategy, rare: st.SearchStrategy) -> st.SearchStrategy:
    """Draw what is right seven times of eight: a request with many mistakes is refused for the first."""
    return st.integers(0, 7).flatmap(lambda n: rare if n == 7 else likely)


word = mostly(st.sampled_from(["ab12", "abc@v100", "gdata/ab12", "qos_gpu-t4"]), any_text)
size = mostly(st.integers(1, 9), st.sampled_from([0, -1, 48, 97, 10**6, 10**12, True, 1.5, "2", None]))
time = mostly(
    st.sampled_from(["2h", "90m", "1-12:00:00", "00:10:00", "05:00:00"]),
    st.one_of(st.sampled_from(["48:00", "9999h", "0"]), any_text),
)
line = mostly(any_text.filter(str.isprintable), any_text)


def partitions(name: str) -> list[str]:
    return [alias for own, part in search.load(name).site.partitions.items() for alias in (own, *part.aliases)]


@st.composite
def requests(draw: st.DrawFn) -> dict[str, object]:
    """Draw what a person may type; a third of the options, so that many requests are possible ones."""
    name = draw(st.sampled_from(PROFILE_NAMES))
    values = {
        "nodes": size,
        "partition": mostly(st.sampled_from(partitions(name)), any_text),
        "account": word,
        "qos": word,
        "walltime": time,
        "gpus_per_node": size,
        "tasks_per_node": size,
        "cpus_per_task": size,
        "mem_gb": size,
        "job_name": mostly(st.sampled_from(["train", "bash"]), any_text),
        "launcher": st.sampled_from([*types.LAUNCHERS, "mpiexec"]),
        "module": st.lists(line, max_size=2),
        "venv": line,
        "env": st.dictionaries(
            mostly(st.sampled_from(["A", "B_1", "path"]), st.sampled_from(["NCPUS", "IFS", "RANK", "1A", "a b"])),
            any_text,
            max_size=2,
        ),
        "storage": st.lists(word, max_size=2),
        "directive": st.lists(mostly(st.sampled_from(["--exclusive", "-V", "-J 1-3"]), any_text), max_size=2),
        "max_attempts": size,
        "jobfs_gb": size,
        "max_cost": mostly(st.sampled_from([10**5, 10**9]), size),
        "force": st.lists(mostly(st.sampled_from(["walltime", "qos", "size", "account"]), any_text), max_size=2),
        "warn_before": time,
        "hang_after": time,
        "workload": st.sampled_from(["mnist", "env", "nosuch"]),
        "command": st.lists(any_text, max_size=3),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(values)), max_size=len(values) // 3))
    return {"site": name, **{key: draw(values[key]) for key in sorted(chosen)}}


def bash(script: str, *words: str) -> str:
    done = subprocess.run(
        ["bash", *words], input=script.encode(errors="surrogateescape"), capture_output=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, (done.stderr.decode(errors="replace"), script)
    return done.stdout.decode(errors="surrogateescape")


def check_script(script: str) -> None:
    """A script that bash reads, with all its directives before the first command."""
    bash(script, "-n")
    head = re.search(r"\n[^#\n]", script)
    assert head and not re.search(r"^#(SBATCH|PBS) ", script[head.start() :], re.MULTILINE), script


# The lines on which a person's values stand, and programs that print what bash makes of them.
VALUES = re.compile(r"^(#   hpclaunch .*|module load .*|venv=.*|export \w+=.*|command=\(.*\))$", re.MULTILINE)
ECHO = r"""
module() { shift; printf 'module:%s\0' "$1"; }
source() { printf 'venv:%s\0' "$1"; }
"""


def read_by_bash(script: str, names: list[str]) -> list[str]:
    """Return what bash makes of a script's lines with values: each module, venv, variable and word of the command."""
    lines = [
        line for line in VALUES.findall(script) if not line.startswith("export") or line[7:].split("=")[0] in names
    ]
    tell = "".join(f"printf '{name}:%s\\0' \"${name}\"\n" for name in names)
    said = bash("\n".join([ECHO, *lines, tell, 'printf "%s\\0" "${command[@]}"', ""]))
    return said.split("\0")[:-1]


def planned(values: dict[str, object]) -> tuple[Plan | None, str]:
    """Return the plan, or why there is none."""
    try:
        return make_plan(search.load(str(values["site"])), make_request(values)), ""
    except HpclaunchError as error:
        return None, str(error).strip()


@given(values=requests())
def test_any_request_gives_a_refusal_in_words_or_a_script_with_every_value_quoted(values):
    """What is refused has a reason, what is not is a sound script that says just what was asked."""
    plan, refusal = planned(values)
    assert plan or refusal
    if plan is None:
        return
    script, _ = render(plan)
    check_script(script)
    request = plan.request
    modules = [f"module:{module}" for module in plan.modules]
    venv = [f"venv:{request.venv}"] if request.venv else []
    env = [f"{name}:{value}" for name, value in request.env.items()]
    if not request.venv or not re.search(r"\$|^~", request.venv):  # those are expanded, by design
        assert read_by_bash(script, ["venv"] * bool(venv) + list(request.env)) == [*modules, *venv, *env, *plan.command]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a shipped profile with some lines lost, doubled, moved, cut, or given another value."""
    name = draw(st.sampled_from(PROFILE_NAMES))
    lines = TEXTS[name].splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        key = lines[at].partition(":")[0]
        kind = draw(st.sampled_from(["lose", "double", "move", "cut", "value", "value", "insert"]))
        if kind == "lose":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif kind == "cut":
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        elif kind == "insert":
            lines.insert(at, draw(any_text).encode(errors="replace").decode())
        else:
            values = st.sampled_from(
                ["0", "-1", "1e99", "null", "[]", "{}", "yes", "48:00:00", "'x y'", "[1, a]", "2026-01-01"]
            )
            lines[at] = f"{key}: {draw(st.one_of(values, any_text)).encode(errors='replace').decode()}"
    return name, "\n".join(lines) + "\n"


@given(profile=mutated())
def test_any_profile_gives_a_mistake_in_words_or_a_script(profile, tmp_path_factory):
    """Mistakes in a profile are named with file and line, or harmless."""
    name, text = profile
    path = Path(tmp_path_factory.getbasetemp(), f"{name}.yaml")
    path.write_bytes(text.encode())
    plan, refusal = planned({"site": os.fspath(path), "nodes": 2, "command": ["python", "train.py"]})
    assert plan or refusal
    if plan:
        check_script(render(plan)[0])
