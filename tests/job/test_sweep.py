"""Sweeps before they are submitted: the values that options name, what is refused, the script of an array."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from hpclaunch.errors import RequestError
from hpclaunch.job import sweep
from hpclaunch.job.consider import make_plan
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search

NASTY = ["1e-3", "", "a b", "it's", '"$HOME" `id`', "back\\slash", "{seed}", "\n", "é*?", "-x;exit 9"]


def planned(site: str, elements: dict[int, dict[str, str]], **values):
    """Return a sweep's plan, and that of the array if it is one."""
    at_most = values.pop("at_most", None)
    template = make_request({"site": site, "walltime": "1h", "command": ["echo", "{lr}"], **values})
    profile = search.load(site)
    whole = make_plan(profile, sweep.swept(template, elements))
    own = {number: sweep.element(whole.request, template, one) for number, one in elements.items()}
    plans = {number: structs.replace(whole, request=one, command=one.command) for number, one in own.items()}
    return whole, sweep.as_array(profile, whole, plans, at_most)


def test_values_are_combined_in_the_order_given():
    """Lists and ranges are multiplied, the last of them changing first."""
    found = sweep.product([sweep.axis("lr=1e-3,3e-4"), sweep.axis("seed=-1..1")])
    assert [(one["lr"], one["seed"]) for one in found.values()] == [
        (lr, seed) for lr in ("1e-3", "3e-4") for seed in ("-1", "0", "1")
    ]
    assert list(sweep.indices("0-4:2,7")) == [0, 2, 4, 7]
    assert sweep.axis("path=../a,b=c") == [{"path": "../a"}, {"path": "b=c"}]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr", "use NAME=V1,V2"),
        ("2x=1", "use NAME=V1,V2"),
        ("lr=", "'': use NAME=V1,V2"),
        ("lr=1,,2", "'': use NAME=V1,V2"),
        ("lr=3..1", "'3..1': use"),
        ("lr=1..x", "'1..x': use"),
        ("lr=0..999999", "at most 10,000"),
    ],
)
def test_a_bad_setting_is_refused(setting, message):
    """The message says which value is wrong, and what is right."""
    with pytest.raises(RequestError, match=re.escape(message)):
        sweep.axis(setting)


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-4:0", "1,1", "0-3%2", "0-99999"])
def test_bad_indices_are_refused(text):
    """Indices are numbers, ranges and lists of them, each once."""
    with pytest.raises(RequestError, match="--array"):
        sweep.indices(text)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [["lr"]],
        [["lr", "lr"], ["1", "2"]],
        [["lr", "seed"], ["1"]],
        [["l r"], ["1"]],
        [["lr"], ["1\0"]],
        [["lr"], ['"1']],
    ],
)
def test_a_bad_table_is_refused(rows):
    """A table has names in its first row, and a value for each in every other."""
    Path("runs.csv").write_text("\n".join(map(",".join, rows)))
    with pytest.raises(RequestError, match=re.escape("runs.csv: ")):
        sweep.table(Path("runs.csv"))


def test_what_is_swept_twice_is_refused():
    """No name stands in two settings, no combination comes twice."""
    with pytest.raises(RequestError, match="lr is swept twice"):
        sweep.product([sweep.axis("lr=1"), sweep.axis("lr=2")])
    with pytest.raises(RequestError, match="lr='1' is swept twice"):
        sweep.product([sweep.axis("lr=1,2,1")])
    with pytest.raises(RequestError, match="state is a column of the results"):
        sweep.product([sweep.axis("state=1,2")])


def test_every_name_has_a_place():
    """A {name} that is not swept and a name without a place are refused; doubled braces are text."""
    request = make_request({"command": ["p", "{lr}", "{{lr}}", '{"a": {}}'], "env": {"OUT": "out-{seed}"}})
    with pytest.raises(RequestError, match=re.escape("{seed} is not swept")):
        sweep.swept(request, {0: {"lr": "1"}})
    with pytest.raises(RequestError, match="x is not used"):
        sweep.swept(request, {0: {"lr": "1", "seed": "2", "x": "3"}})
    first = sweep.swept(request, {0: {"lr": "{seed}", "seed": "2"}})
    assert (first.command, first.env) == (["p", "{seed}", "{lr}", '{"a": {}}'], {"OUT": "out-2"})


def test_an_arrays_script_sets_any_values():
    """Whatever characters a value has, the command of its job gets it as it is."""
    elements = {number: {"lr": value} for number, value in enumerate(NASTY)}
    command = ["echo", "--lr={lr}", "{lr}", "{{lr}}", "a '{lr}'"]
    _, array = planned("jean-zay", elements, account="abc@v100", command=command, env={"OUT": "{lr}!"})
    script, _ = render(array)
    lines = script[script.index("case $SLURM_ARRAY_TASK_ID") : script.index("# ---------- Launch")]
    show = 'printf "%s\\0" "${command[@]}" "$OUT"'
    for number, value in enumerate(NASTY):
        environment = {"SLURM_ARRAY_TASK_ID": str(number), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["bash", "-c", lines + show], env=environment, capture_output=True, check=True)
        own = ["echo", f"--lr={value}", value, "{lr}", f"a '{value}'"]
        assert done.stdout.decode().split("\0")[:-1] == [*own, f"{value}!"]
        assert array.array[number].command == own
    assert "#SBATCH --array=0-9\n" in script
    assert "# 10 jobs, each jean-zay" in script and "in all" in script
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)


def test_each_job_of_an_array_has_its_own_command():
    """Also if the first and the last are the same."""
    elements = {0: {"a": "1", "b": "23"}, 1: {"a": "5", "b": "5"}, 2: {"a": "12", "b": "3"}}
    _, array = planned("slurm", elements, command=["echo", "{a}{b}"])
    script, _ = render(array)
    assert "\n0) command=(echo 123) ;;\n1) command=(echo 55) ;;\n2) command=(echo 123) ;;\n" in script


@pytest.mark.parametrize(
    ("numbers", "at_most", "lines"),
    [
        (range(12), 3, {"jean-zay": "--array=0-11%3", "pbs": "-J 0-11%3"}),
        ((0, 2, 4), None, {"jean-zay": "--array=0-4:2", "pbs": "-J 0-4:2"}),
        ((1, 3, 7), None, {"jean-zay": "--array=1,3,7", "pbs": None}),
        ((3,), None, {"jean-zay": None, "pbs": None}),
    ],
)
def test_an_array_is_used_where_it_can_be(numbers, at_most, lines):
    """A list of indices is for Slurm only; one job is no array; Gadi takes none."""
    elements = {number: {"lr": str(number)} for number in numbers}
    for site, line in ({"gadi": None} | lines).items():
        account = {"jean-zay": "abc@v100", "gadi": "ab12"}.get(site)
        _, array = planned(site, elements, at_most=at_most, account=account)
        assert (array and next(one for one in array.directives if one.startswith(("-J", "--array")))) == line


def test_pbs_arrays_have_one_attempt():
    """On PBS each attempt would submit the whole array, so a sweep with attempts is single jobs; not so on Slurm."""
    elements = {0: {"lr": "1"}, 1: {"lr": "2"}}
    assert planned("pbs", elements, max_attempts=2)[1] is None
    assert planned("jean-zay", elements, max_attempts=2, account="abc@v100")[1].max_attempts == 2


def test_the_price_is_that_of_all():
    """The cost and its limit are those of the whole sweep."""
    elements = {number: {"lr": str(number)} for number in range(12)}
    whole, _ = planned("gadi", elements, account="ab12", partition="gpuvolta", gpus_per_node=1)
    one = make_plan(search.load("gadi"), structs.replace(whole.request, jobs=1))
    assert whole.cost.amount == pytest.approx(12 * one.cost.amount)
    assert "12 jobs x 3 SU x 1 h" in whole.cost.formula and "12 jobs, each gadi gpuvolta" in whole.summary()
    with pytest.raises(RequestError, match="12 jobs"):
        planned("gadi", elements, account="ab12", partition="gpuvolta", gpus_per_node=1, max_cost=one.cost.amount * 2)
    for directive in ("--array=0-9:3%2", "-a 1,3,5-6"):
        request = {"account": "abc@v100", "walltime": "1h", "directive": [directive], "command": ["true"]}
        assert make_plan(search.load("jean-zay"), make_request(request)).cost.amount == 4 * 4


def test_a_sites_limit_of_jobs_holds():
    """More jobs than a user may have are refused, as an array and as single jobs."""
    elements = {number: {"lr": str(number)} for number in range(12)}
    for force in ([], ["arrays"]):
        values = {"account": "abc@v100", "qos": "qos_gpu-dev", "force": force}
        if force:
            assert "12 jobs exceed qos_gpu-dev's limit of 10" in str(
                planned("jean-zay", elements, **values)[0].warnings
            )
        else:
            with pytest.raises(RequestError, match="12 jobs exceed qos_gpu-dev's limit of 10"):
                planned("jean-zay", elements, **values)
