"""What a job used, in words and as a page, from what schedulers and nodes say."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import USES, call, processes_with, program, start, used_by_ranks

from hpclaunch.job.consider import make_plan
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.runs import groups, submit, usage
from hpclaunch.runs.registry import Run
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.job import Usage


@pytest.fixture
def finished(work, tmp_path, monkeypatch, plots):
    """A job of two nodes on Gadi that has ended, an hour of five, as its folder tells."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def note(*lines: str, code: int = 0, **values: object) -> Path:
        asked = {"partition": "gpuvolta", "account": "ab12", "walltime": "5h", "command": ["python", "train.py"]}
        plan = make_plan(search.load(str(values.get("site", "gadi"))), make_request(asked | values))
        run = submit.note(plan.about, plan.hidden(), render(plan)[0], ["107.gadi-pbs"])
        for node in range(plan.nodes):
            begin = (f"1000000 node gadi-gpu-v100-000{node} 1", f"1000000 start rank {node}", "1000000 0 100")
            end = ("1003600 36000000 62464", f"1003600 end rank {node} {code}")
            (run.path / f"node-{node}.usage").write_text("\n".join([*begin, *lines, *end, ""]))
        (run.path / "exit").write_text(f"{code}\n")
        return run.path

    return note


def report(cli, *words: str) -> dict:
    result = cli("report", "--json", *words)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_what_was_asked_and_used_and_the_price(cli, finished):
    """Without an accounting the nodes' own samples count; the price is that of the time that the job took."""
    finished(nodes=2)
    found = report(cli)
    assert found["asked"]["mem_gb_per_node"] == 380
    assert found["used"] | {"gpus": []} == {
        "seconds": 3600, "cpu_seconds": 72000, "cores": 10, "mem_gb": 61, "gpus": [], "joules": None
    }  # fmt: skip
    assert found["paid"]["amount"] == 288
    said = cli("report").stdout
    assert re.search(r"walltime +05:00:00 +01:00:00 \(20%\)", said)
    assert re.search(r"price +1,440 SU +288 SU = 3 SU x 1 h x 96 cpus", said.replace("max(96 cpus, ", "96 cpus"))
    assert re.search(r"energy +unknown", said)


def test_advice_has_options_and_what_they_save(cli, finished):
    """Memory that makes the price is advised against, with the price of the very request; what saves nothing is not."""
    finished(gpus_per_node=1, mem_gb=380)
    advice = "\n".join(report(cli)["advice"])
    assert "walltime 05:00:00, used 01:00:00: --walltime 01:15:00 starts sooner" in advice
    assert "asked 380 GB of memory a node, used at most 61 GB: --mem-gb 77 lowers the price by 75%" in advice
    cheaper = make_plan(search.load("gadi"), make_request(
        {"partition": "gpuvolta", "account": "ab12", "walltime": "5h", "gpus_per_node": 1, "mem_gb": 77,
         "command": ["python", "train.py"]}))  # fmt: skip
    assert f"to {cheaper.cost} for 05:00:00" in advice
    finished(nodes=2)
    assert not any("--mem-gb" in line for line in report(cli)["advice"])  # whole nodes cost the same


@pytest.mark.parametrize("code", [137, 1])
def test_a_job_that_failed_is_not_told_to_take_less(cli, finished, code):
    """What it used until then is not what it needs."""
    finished(gpus_per_node=1, mem_gb=380, code=code)
    assert report(cli)["advice"] == []


def test_an_option_leaves_what_was_used(cli, finished):
    """Fewer GPUs come with the memory that was used; where memory goes with them, fewer are not advised."""
    line = "{} 1000 300000 0,90,1000,250.5 1,0,10,9 2,0,9,9 3,0,9,9"
    lines = [line.format(1000000 + 10 * i) for i in range(10)]
    finished(*lines, gpus_per_node=4, mem_gb=380)
    assert not any("--gpus-per-node" in one for one in report(cli)["advice"])  # 4 GPUs cost no more than this memory
    finished(*lines, gpus_per_node=4, tasks_per_node=4, site="jean-zay", partition="v100", account="abc@v100")
    assert not any("--gpus-per-node" in one or "--cpus" in one for one in report(cli)["advice"])


def test_a_walltime_is_advised_only_if_it_is_accepted(cli, finished):
    """One that is too short for another option is not."""
    finished(hang_after="2h")
    assert not any("--walltime" in one for one in report(cli)["advice"])


def test_idle_gpus_are_named(cli, finished):
    """A GPU that did nothing is named with its share of the time; [N/A] and lines cut short are left out."""
    line = "{} 1000 100 0,90,1000,250.5 1,0,10,[N/A] 2,50,9,99 3,{},9,99"
    finished(*(line.format(1000000 + 10 * i, 0 if i < 6 else 90) for i in range(10)), "10036", nodes=2)
    found = report(cli)
    assert "GPU 1 of gadi-gpu-v100-0000 was idle 100 % of the time" in found["advice"]
    assert "GPU 3 of gadi-gpu-v100-0001 was idle 60 % of the time" in found["advice"]
    assert any(one.startswith("used 3 of 4 GPUs of a node") for one in found["advice"])
    assert found["used"]["gpus"][0] == ["gadi-gpu-v100-0000", "0", 90, 0]


def test_the_example_in_the_docs(cli, finished):
    """docs/report.md shows what a job of two hours of five with these samples prints."""
    folder = finished(gpus_per_node=1, mem_gb=380)
    lines = ["1000000 node gadi-gpu-v100-0000 1", "1000000 0 100", "1000010 34000 62464 0,60,9000,200",
             "1007800 24200000 62464 0,56,9000,200", "1007812 24217000 62464"]  # fmt: skip
    (folder / "node-0.usage").write_text("\n".join([*lines, ""]))
    [shown] = re.findall(r"(?s)```text\n(.*?)```", Path(__file__).parents[2].joinpath("docs/report.md").read_text())
    assert cli("report").stdout.replace("107.gadi-pbs", "1234567.gadi-pbs") == shown


def test_what_is_not_known_is_said_to_be_unknown(cli, finished):
    """Of a job whose nodes noted nothing and whose plan is gone nothing is guessed."""
    folder = finished()
    for path in [*folder.glob("*.usage"), folder / "plan.json"]:
        path.unlink()
    found = report(cli)
    assert (found["asked"], found["paid"], found["advice"]) == (None, None, [])
    assert {value for name, value in found["used"].items() if name != "gpus"} == {None}
    assert cli("report").stdout.count("unknown") == 5


@pytest.mark.parametrize("plan", ["[]", "null", '{"request": []}', "[" * 100000, ""])
def test_broken_files_are_no_traceback(cli, finished, plan):
    """Neither a plan that is none, nor samples that are cut short: what is left of them is shown."""
    size = "9" * 400
    folder = finished("1000010 x", "1000020 1000 100 0,[N/A],1,nan", f"{size} save rank 0", f"1000030 {size} 5")
    (folder / "plan.json").write_text(plan)
    assert report(cli)["asked"] is None


def test_samples_of_no_sense_are_no_traceback(cli, finished):
    """Times beyond any walltime are shown as they are, and a host may have any name."""
    folder, size = finished(), "9" * 400
    (folder / "node-0.usage").write_text(f"1000000 node $\\foo$ 1\n1000000 0 0\n{size} 10 5\n")
    assert cli("report", "--html", "r.html").exit_code == 0
    with (folder / "plan.json").open("w") as file:
        json.dump({"request": {"partition": "gpuvolta"}, "partition_name": "gpuvolta"}, file)
    assert cli("report").exit_code == 0


def test_a_gap_in_the_samples_is_no_use(cli, finished):
    """A sample that misses a process that has just ended does not make the next one large."""
    finished("1001000 10000000 100", "1001010 2900000 100", "1001020 10100000 100")
    assert report(cli)["used"]["cores"] == pytest.approx(10, abs=1)


def test_attempts_and_a_range_of_nodes(cli, finished):
    """The share of the walltime is that of all attempts; memory is divided by the nodes that there were."""
    values = {"site": "jean-zay", "partition": "v100", "account": "abc@v100", "max_attempts": 3}
    finished(nodes=2, **values)
    assert re.search(r"walltime +3 x 05:00:00 +01:00:00 \(7%\)", cli("report").stdout)


def test_sacct_is_read(programs):
    """All starts of a job count, the memory of the largest task for each task of its step, energy where it is known."""
    rows = [
        "1234|60|7200000|||01:00.500",
        "1234.batch|60|0|1|2048K|00:00.500",
        "1234.0|60|0|4|1048576K|01:00:00",
        "1234|30|18446744073709551614|||1-00:00:01",
        "1234.0|30||4||00:00:00",
        "1234|1||||",
        "1234|2||||INVALID",
    ]
    answer = "cat <<EOF\n" + "\n".join(["welcome to the site", *rows]) + "\nEOF"
    programs("sacct", f'[[ " $* " == *" --user={os.getuid()} "* ]] || exit 1\n{answer}')
    assert scheduler("slurm").usage(make_job("1234")) == Usage(93, 86461.5, 4, 7200000)


def make_job(name: str) -> Run:
    """Return a job of a site without a folder."""
    return Run(id=name, site="x", scheduler="slurm", job_name="x", folder=str(Path.cwd() / name), submitted=0)


@pytest.mark.parametrize(
    ("used", "expected"),
    [('{"cput": "00:01:30", "mem": "2097152kb", "walltime": "00:02:00"}', Usage(120, 90, 2)),
     ('{"cput": "00:00:00", "mem": "0b", "walltime": 5}', Usage(5, None, None)), ("17", Usage()), ("{}", Usage())],
)  # fmt: skip
def test_qstat_is_read(programs, used, expected):
    """resources_used counts; 0b of a host that does not count, and what cannot be read, are not known."""
    programs("qstat", f"""echo '{{"Jobs": {{"7.s": {{"job_state": "F", "resources_used": {used}}}}}}}'""")
    assert scheduler("pbs").usage(make_job("7.s")) == expected


EVIL = "<script>document.title = 'x'</script> & \"<b>bold"


def test_the_page_escapes_what_jobs_write(cli, finished, monkeypatch):
    """Nothing of a log, a script or a name becomes a part of the page; secret values are not in it."""
    folder = finished(code=7, env={"WANDB_API_KEY": "123secret", "A": "1 < 2 & 3"}, job_name="train")
    (folder / "failed").write_text("7 rank-0.log rank 0 on n1\n")
    (folder / "rank-0.log").write_text(f"{EVIL}\n")
    with (folder / "job.sh").open("a") as file:  # as in an array
        file.write("0) export LR=1; export HF_TOKEN=456secret; command=(true) ;;\n")
    assert cli("report", "--html", "r.html").exit_code == 0
    text = Path("r.html").read_text()
    assert "<script" not in text and "<b>" not in text and "&lt;b&gt;bold" in text
    assert not re.search("[36]secret", text) and "export A=&#39;1 &lt; 2 &amp; 3&#39;" in text
    assert "rank 0 on n1 exited with 7" in text
    assert not re.search(r'(src|href)="(?!#)', re.sub(r'xmlns(:\w+)?="[^"]*"', "", text).replace('xlink:href="#', ""))


def test_without_matplotlib_one_line_says_what_to_install(cli, finished, monkeypatch):
    """The words of the report need no plots; the page names the package."""
    finished()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = cli("report", "--html", "r.html")
    assert result.exit_code == 1
    assert result.stderr.endswith("report --html needs matplotlib; use pip install 'hpclaunch[plot]'\n")


# Shows the page in a frame, as a browser's window cannot be so narrow; notes what is too wide, how many plots are
# seen, and how bright its text and that of a plot are.
FRAME = """<iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>
const bright = text => text.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0);
onload = () => {{
    const page = document.querySelector("iframe").contentDocument, look = getComputedStyle;
    page.querySelector("details").open = true;
    const plots = [...page.querySelectorAll("figure")].filter(one => one.getBoundingClientRect().height > 100);
    document.documentElement.dataset.found = JSON.stringify([
        page.documentElement.scrollWidth - page.documentElement.clientWidth, plots.length,
        bright(look(page.body).color), bright(look(plots[0].querySelector("svg text")).fill)]);
}};
</script>"""


@pytest.mark.job
def test_the_page_in_a_browser(cli, finished, work):
    """In Chromium, narrow and wide, light and dark: no error, nothing is wider than the window, the text stands out."""
    if not (chromium := shutil.which("chromium", path=f"{os.environ['PATH']}:/usr/bin")):
        pytest.skip("Chromium is not installed: no chromium on PATH (Debian: chromium)")
    folder = finished(*(f"{1000000 + 60 * i} {i * 60000} 9000 0,90,1000,250.5" for i in range(50)), nodes=2, code=7)
    (folder / "failed").write_text("7 rank-0.log rank 0 on n1\n")
    (folder / "rank-0.log").write_text("x" * 500 + "\n")
    assert cli("report", "--html", "r.html").exit_code == 0
    for width, dark in itertools.product((400, 1400), (True, False)):
        Path("frame.html").write_text(FRAME.format(width=width, page=html.escape(Path("r.html").read_text())))
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1500,1000", "--enable-logging=stderr"]
        words += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--user-data-dir={work}/chrome"]
        done = subprocess.run([chromium, *words, "--dump-dom", f"file://{work}/frame.html"],
                              capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
        assert "CONSOLE" not in done.stderr
        too_wide, plots, text, of_plot = json.loads(re.search('data-found="(.*?)"', done.stdout)[1])
        assert (too_wide, plots) == (0, 1)
        assert text == of_plot and (text > 600 if dark else text < 150)


@pytest.mark.job
def test_a_run_here_agrees_with_what_its_ranks_used(work, tmp_path):
    """On this machine too: memory and time of cores are within 5 % of what the ranks say; GPUs are nvidia-smi's."""
    program(tmp_path / "bin/nvidia-smi", "while :; do echo 0, 90, 1000, 250.50; echo 1, 0, 10, [N/A]; sleep 1; done")
    path = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    size = ("--nodes", 2, "--gpus-per-node", 2, "--tasks-per-node", 1)
    with start("run", "--quiet", *size, "--", sys.executable, "-c", USES, 200, 4, 3, env=path) as process:
        assert process.wait(120) == 0
    (folder,) = (work / "hpclaunch-runs").iterdir()
    found, ranks = json.loads(call("report", "--json", folder)), used_by_ranks(folder)
    assert found["word"] == "COMPLETED"
    assert found["used"]["mem_gb"] == pytest.approx(max(memory for memory, _ in ranks), rel=0.05)
    assert found["used"]["cpu_seconds"] == pytest.approx(sum(seconds for _, seconds in ranks), rel=0.05)
    assert [gpu[1:] for gpu in found["used"]["gpus"]] == [["0", 90, 0], ["1", 0, 100]] * 2
    nodes = usage.read(folder)
    assert [what for node in nodes for _, what, _, _ in node.events] == ["start", "end"] * 2
    assert processes_with(str(tmp_path / "bin/nvidia-smi")) == []


@pytest.mark.job
@pytest.mark.parametrize(("smi", "killed"), [("while :; do echo 0, 9, 100, 50; sleep 1; done", 1), ("exit 9", 0)])
def test_only_an_nvidia_smi_that_lives_is_killed(work, tmp_path, smi, killed):
    """The number of one that has ended is no longer its own when a long job ends."""
    program(tmp_path / "bin/nvidia-smi", smi)
    path = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    setup = 'kill() { [[ $1 != -KILL ]] || echo "$2" >>killed; builtin kill "$@"; }; : >killed'
    with start("run", "--quiet", "--gpus-per-node", 1, "--setup", setup, "--", "sleep", 2, env=path) as process:
        assert process.wait(60) == 0
    assert len((work / "killed").read_text().split()) == killed


@pytest.mark.job
def test_a_full_disk_changes_no_exit_code(work):
    """Where nothing can be noted the job runs and ends as ever, and nothing of it is left."""
    script = call("render", "--quiet", "--site", "local", "--nodes", 1, "--", "sh", "-c", "sleep 1; exit 7")
    folder = work / "hpclaunch-runs" / "full"
    folder.mkdir(parents=True)
    (folder / "node-0.usage").symlink_to("/dev/full")
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "HPCLAUNCH_JOB_ID": "full"}, timeout=60,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 7
    assert "No space" not in done.stdout + done.stderr + (folder / "rank-0.err").read_text()


def test_a_sweep_has_no_report_of_its_own(cli, finished):
    """Of several jobs one must be named; a wrong name is no traceback."""
    group = groups.new("sweep", "gadi", {0: {}, 1: {}})
    finished()
    for element in group.elements:
        element.ids.append("107.gadi-pbs")
    groups.register(group)
    assert cli("report", group.id).stderr == (
        f"hpclaunch: report is of one job: {group.id} is 2; use the id of one of them\n"
    )
    assert cli("report", "nothing").exit_code == 1
