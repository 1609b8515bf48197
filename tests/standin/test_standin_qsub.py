"""What the stand-in's qsub takes and refuses: as OpenPBS 23.06 did, with the hook of a site like Gadi."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FIRST_ID
from standin.pbs.settings import queues_of

import hpclaunch
from hpclaunch.profile import search


def test_an_id_is_all_that_qsub_prints(standin):
    """The id is printed and nothing else, for a script in a file, on stdin, and on stdin as `-`."""
    pbs = standin()
    Path("train.sh").write_text("true\n")
    assert pbs.call("qsub", "train.sh").stdout == f"{FIRST_ID}.gadi-pbs\n"
    assert pbs.call("qsub", stdin="true\n").stdout == f"{FIRST_ID + 1}.gadi-pbs\n"
    assert pbs.call("qsub", "-", stdin="true\n").stdout == f"{FIRST_ID + 2}.gadi-pbs\n"
    names = [pbs.job(f"{number}.gadi-pbs")["Job_Name"] for number in range(FIRST_ID, FIRST_ID + 3)]
    assert names == ["train.sh", "STDIN", "STDIN"]


@pytest.mark.parametrize(
    ("script", "options", "code", "words"),
    [
        ("", "-q gpuvolta -l ncpus=10,ngpus=1", 32, "in queue gpuvolta ncpus must be 12 times ngpus: ngpus=1 needs"),
        ("", "-q gpuvolta -l ncpus=24", 32, "ncpus must be 12 times ngpus"),
        ("", "-q normal -l ncpus=80", 32, "whole nodes, multiples of 48; you asked for 80"),
        ("", "-q normal -l ncpus=48,walltime=48:00:01", 32, "walltime is at most 48:00:00"),
        ("", "-q normal -l ncpus=20784,walltime=1:00:00", 32, "ncpus is at most 20736"),
        ("", "-q megamembw -l ncpus=64,walltime=12:00:01", 32, "walltime is at most 12:00:00"),
        ("", "-q nosuch", 170, "qsub: Unknown queue"),
        ("", "-l walltime=abc", 166, "qsub: Illegal attribute or resource value Resource_List.walltime"),
        ("", "-l walltime=1-00:00:00", 166, "Resource_List.walltime"),
        ("", "-l mem=1.5GB", 166, "Resource_List.mem"),
        ("", "-l mem=4GiB", 166, "Resource_List.mem"),
        ("", "-l wd=true", 166, "Resource_List.wd"),
        ("", "-l select=1:ncpus=4 -l ncpus=4", 5, '"-lresource=" cannot be used with "select" or "place"'),
        ("", "-l ncpus=4,", 2, "illegal -l value"),
        ("", "-N a/b", 2, "qsub: illegal -N value\nusage: qsub"),
        ("", "-N " + "n" * 231, 2, "qsub: Job name is too long"),
        ("", "-J 0-0", 2, "illegal -J value"),
        ("", "-J 3", 2, "illegal -J value"),
        ("", "-J 0-3 -r n", 1, "cannot submit non-rerunable Array Job"),
        ("", "-Q", 2, "invalid option -- 'Q'\nusage: qsub"),
        ("", "-W depend=whenever:1", 2, "illegal -W value"),
        ("", "-v NOT_SET_ANYWHERE", 3, "cannot send environment with the job"),
        ("", '-v A={"x":1,"y":2}', 3, "cannot send environment with the job"),
        ("#PBS -l ncpus=4\r\ntrue\n", "", 1, "qsub: script contains cr, lf"),
        ("#PBS -l ncpus = 4\n", "", 1, "qsub: directive error: -l ncpus = 4"),
        ("#PBS -l ncpus=4 # four\n", "", 1, "directive error"),
        ("#PBS -N x # the name\n", "", 1, "directive error"),
        ("#PBS -l ncpus=4,\n", "", 1, "directive error"),
        ("#PBS --foo\n", "", 1, "directive error"),
        ("#PBS nonsense\n", "", 1, "directive error"),
        ("#PBSD -N x\n", "", 1, "directive error"),
    ],
)
def test_what_pbs_refuses(standin, script, options, code, words):
    """A wrong request gets the exit code and the words of the real one, on stderr, and no job."""
    pbs = standin()
    answer = pbs.call("qsub", *options.split(), stdin=script, code=code)
    assert words in answer.stderr
    assert answer.stdout == ""
    assert "Jobs" not in pbs.call("qstat", "-x", "-f", "-F", "json").stdout


def test_it_is_light():
    """The stand-in's programs start with the standard library only."""
    programs = ", ".join(f"standin.pbs.{name}" for name in ("qsub", "qstat", "qdel", "qsig", "pbsdsh", "mom"))
    known = [str(Path(hpclaunch.__file__).parents[1]), str(Path(__file__).parents[1])]
    subprocess.run([sys.executable, "-IS", "-c", f"import sys; sys.path += {known}; import {programs}"], check=True)


def test_its_queues_are_the_profiles():
    """The stand-in refuses what the site's profile does: its own queues, short walltimes, and nothing unconfirmed."""
    gadi = queues_of(search.load("gadi").site)
    assert set(gadi) == set(search.load("gadi").site.partitions)
    assert (gadi["gpuhopper"].max_cores, gadi["gpuvolta"].max_cores) == (None, 960)
    Path("mine.yaml").write_text(
        "extends: gadi\ntitle: Mine\npartitions: {normal: {walltime: [{max_walltime: '00:30:00'}]}}\n"
    )
    assert queues_of(search.load("mine.yaml").site)["normal"].walltime == ((None, 1800),)


def test_options_come_before_the_script(standin):
    """What stands behind the script is a usage error, and a script that is not there another one."""
    pbs = standin()
    Path("train.sh").write_text("true\n")
    assert "usage: qsub" in pbs.call("qsub", "train.sh", "-q", "normal", code=2).stderr
    assert "usage: qsub" in pbs.call("qsub", "train.sh", "argument", code=2).stderr
    assert "No such file or directory" in pbs.call("qsub", "nosuch.sh", code=1).stderr


def test_directives_end_at_the_first_command(standin):
    """Lines that begin with #PBS count, indented ones too, and none after the first command."""
    pbs = standin()
    ignored = "# PBS -N a\n##PBS -N b\n#pbs -N c\n\n"
    job = pbs.job(pbs.submit(f"#!/bin/bash\n{ignored}\t#PBS -j oe -N this\ntrue\n#PBS -N late\n"))
    assert (job["Job_Name"], job["Join_Path"]) == ("this", "oe")


def test_who_wins(standin):
    """The command line wins over the script; in a script the last -N and the first -l count."""
    pbs = standin()
    script = "#PBS -N one\n#PBS -N two\n#PBS -l ncpus=4\n#PBS -l ncpus=8\n#PBS -l walltime=48:00\n"
    job = pbs.job(pbs.submit(script))
    assert (job["Job_Name"], job["Resource_List"]["ncpus"]) == ("two", 4)
    assert job["Resource_List"]["walltime"] == "00:48:00"
    job = pbs.job(pbs.submit(script, "-N", "mine", "-l", "ncpus=2"))
    assert (job["Job_Name"], job["Resource_List"]["ncpus"]) == ("mine", 2)


def test_an_unknown_resource_makes_the_job_vanish(standin):
    """An id is printed and the exit code is 0, yet the job is unknown."""
    pbs = standin()
    job_id = pbs.submit("true", "-l", "foo=1")
    assert job_id == f"{FIRST_ID}.gadi-pbs"
    assert f"qstat: Unknown Job Id {FIRST_ID}.gadi-pbs" in pbs.call("qstat", "-x", job_id, code=153).stderr
    assert pbs.job(pbs.submit("true", "-h", "-l", "foo=1"))["job_state"] == "H"


def test_variables_arrive_but_for_their_quotes(standin):
    """-v keeps quoted commas, blanks and dollars, and eats the quotes, so that JSON breaks."""
    pbs = standin()
    pbs.environment["OUTSIDE"] = "from here"
    listed = r"""A="a,b",B=a\,b,C='a b',D=a=b;c,E=$HOME,F={"x":1},OUTSIDE,N=0"""
    found = pbs.job(pbs.submit("true", "-v", listed))["Variable_List"]
    assert [found[name] for name in "ABCDEF"] == ["a,b", "a,b", "a b", "a=b;c", "$HOME", "{x:1}"]
    assert (found["OUTSIDE"], found["N"]) == ("from here", 0)


def test_block_returns_the_jobs_status(standin):
    """With -W block=true qsub waits and ends as the job does."""
    assert standin().call("qsub", "-W", "block=true", stdin="exit 3\n", code=3).stdout == f"{FIRST_ID}.gadi-pbs\n"


def test_output_goes_where_it_was_asked_for(standin, work):
    """Output lands in the folder of submission with mode 0600, $PBS_JOBID stays as it is, a folder gets ID.OU."""
    pbs = standin()
    (work / "logs").mkdir()
    say = "echo out; echo err >&2\n"
    pbs.ended(pbs.submit(say, "-N", "plain"))
    pbs.ended(pbs.submit(say, "-N", "joined", "-j", "oe"))
    pbs.ended(pbs.submit(say, "-j", "oe", "-o", "x.$PBS_JOBID.log"))
    pbs.ended(pbs.submit(say, "-j", "oe", "-o", "logs/"))
    assert (work / f"plain.o{FIRST_ID}").read_text() == "out\n"
    assert (work / f"plain.e{FIRST_ID}").read_text() == "err\n"
    assert stat.S_IMODE((work / f"plain.o{FIRST_ID}").stat().st_mode) == 0o600
    assert (work / f"joined.o{FIRST_ID + 1}").read_text() == "out\nerr\n"
    assert not (work / f"joined.e{FIRST_ID + 1}").exists()
    assert (work / "x.$PBS_JOBID.log").exists()
    assert (work / "logs" / f"{FIRST_ID + 3}.gadi-pbs.OU").exists()


def test_without_its_folder_the_output_is_lost(standin, work):
    """A job whose -o has no folder ends well, and its output stays on the node."""
    pbs = standin(poll=0.3)
    assert pbs.ended(pbs.submit("echo lost", "-j", "oe", "-o", "nosuch/x.log"))["Exit_status"] == 0
    assert (pbs.folder / "undelivered" / f"{FIRST_ID}.gadi-pbs.OU").read_text() == "lost\n"


def test_where_jobs_and_arrays_may_not_be_submitted(standin):
    """A site can refuse qsub inside of jobs, and arrays."""
    pbs = standin(refuse_qsub_in_jobs=True, arrays=False)
    pbs.ended(pbs.submit("qsub -N inner </dev/null; echo $?", "-N", "outer", "-j", "oe"))
    assert re.fullmatch(r"qsub: Bad UID for job execution\n175\n", Path(f"outer.o{FIRST_ID}").read_text())
    assert "job arrays are not allowed" in pbs.call("qsub", "-J", "0-3", stdin="true", code=32).stderr
