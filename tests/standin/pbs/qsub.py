"""qsub: takes a job script, prints the job's id."""

from __future__ import annotations

import getopt
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from standin.pbs import attributes, directives, environment, resources, scheduler
from standin.pbs.attributes import IllegalValueError
from standin.pbs.refusal import Refusal
from standin.pbs.server import Job, Server, stamp

from hpclaunch.rehearsal.processes import MARK

USAGE = """usage: qsub [-e path] [-h] [-I] [-j oe|eo|n] [-J X-Y[:Z][%N]] [-k od|oed|ed] [-l resource_list] [-N jobname]
\t[-o path] [-P project] [-q queue] [-r y|n] [-S path] [-v variable_list] [-V] [-W additional_attributes]
\t[-z] [script | -- command [arguments]]"""


@dataclass(frozen=True)
class Asked:
    """What the command line and the directives ask for."""

    given: dict[str, str]  # option -> value, the command line's before the script's
    asked: dict[str, str]  # resource -> value
    extra: dict[str, str]  # -W


def main(arguments: list[str] | None = None) -> int:
    """Submit a job; return qsub's exit code."""
    server = Server(Path(os.environ[MARK]))
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _submit(server, words)
    except IllegalValueError as error:
        print(f"qsub: illegal -{error} value\n{USAGE}", file=sys.stderr)
        return 2
    except getopt.GetoptError as error:
        print(f"qsub: invalid option -- '{error.opt}'\n{USAGE}", file=sys.stderr)
        return 2
    except Refusal as error:
        print(f"qsub: {error}", file=sys.stderr)
        return error.code


def _fails(server: Server) -> bool:
    """Tell whether this call is to fail."""
    with server.locked():
        path = server.folder / "qsub-fails"
        left = int(path.read_text()) if path.exists() else 0
        path.write_text(str(max(left - 1, 0)))
        return left > 0


def _submit(server: Server, words: list[str]) -> int:
    if _fails(server):  # 1 of 290 did (OpenPBS 23.06, seen)
        print("auth: Unable to authenticate connection", file=sys.stderr)
        raise Refusal("Resource temporarily unavailable", 1)
    given, rest = directives.options(words)
    command = words[len(words) - len(rest) - 1 :][:1] == ["--"] and bool(rest)
    if len(rest) > 1 and not command:
        print(USAGE, file=sys.stderr)  # options must come before the script, and it takes no arguments
        return 2
    script, name = ("", "STDIN") if command else _script(rest[0] if rest else "-")
    wanted = _merge(given, directives.parse(script))
    interactive = ["sleep", "infinity"] if "I" in wanted.given else []
    jobs = _jobs(server, wanted, wanted.given.get("N", name), rest if command else interactive)
    with server.locked():
        number = server.next_number()
        jobs = [_number(server, job, number) for job in jobs]
        path = server.script(jobs[0])
        path.write_text(script, encoding="utf-8", errors="surrogateescape")
        path.chmod(0o700)
        for job in jobs:
            server.save(job)
    if "I" in wanted.given:
        return _interactive(server, jobs[0].id, wanted.given.get("S", "/bin/bash"))
    if "z" not in wanted.given:
        print(jobs[0].id, flush=True)
    scheduler.cycle(server)
    return _wait(server, jobs[0].id) if wanted.extra.get("block") == "true" else 0


def _interactive(server: Server, job_id: str, shell: str) -> int:
    """Open a login shell with the variables of the job on its first node; the job ends with it."""
    print(f"qsub: waiting for job {job_id} to start", flush=True)
    while not ((job := server.find(job_id)) and job.session):
        scheduler.cycle(server)
        time.sleep(0.1)
    print(f"qsub: job {job_id} ready\n", flush=True)
    lines = Path(f"/proc/{job.session}/environ").read_text().split("\0")
    variables = dict(line.split("=", 1) for line in lines if line) | {"PBS_ENVIRONMENT": "PBS_INTERACTIVE"}
    subprocess.run(["-bash"], executable=shell, env=variables, cwd=variables["HOME"], check=False)
    subprocess.run(["qdel", job_id], check=False)
    print(f"\nqsub: job {job_id} completed", flush=True)
    return 0


def _script(name: str) -> tuple[str, str]:
    """Return a script and the job name that it gives."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise Refusal(f"script file:: {error.strerror}", 1) from None
    if b"\r\n" in data:
        raise Refusal("script contains cr, lf", 1)
    return data.decode("utf-8", errors="surrogateescape"), "STDIN" if name == "-" else Path(name).name


def _merge(command_line: list[tuple[str, str]], script: list[tuple[str, str]]) -> Asked:
    """Join both; the command line wins. In the script the last -N wins, but the first -l ncpus (as seen)."""
    given = dict(script) | dict(command_line)
    asked: dict[str, str] = {}
    extra: dict[str, str] = {}
    for source, found in (("line", command_line), ("script", script)):
        for option, value in found:
            try:
                if option == "l":
                    for resource, amount in resources.split(value):
                        asked.setdefault(resource, amount or ("0" if resource == "wd" else ""))
                elif option == "W":
                    extra = attributes.additional(value) | extra
                else:
                    attributes.check(option, value)
            except (ValueError, IllegalValueError):
                if source == "line":
                    raise IllegalValueError(option) from None
                raise directives.wrong(f"-{option} {value}") from None
    return Asked(given, asked, extra)


def _jobs(server: Server, wanted: Asked, name: str, program: list[str]) -> list[Job]:
    """Return the job, or the array and its subjobs, without their ids."""
    given, settings = wanted.given, server.settings
    inside = "PBS_JOBID" in os.environ and "PBS_ENVIRONMENT" in os.environ
    if settings.refuse_qsub_in_jobs and inside:
        raise Refusal("Bad UID for job execution", 175)
    queue = given.get("q", settings.default_queue).partition("@")[0]
    if queue not in settings.queues:
        raise Refusal("Unknown queue", 170)
    indices, most = attributes.array(given["J"]) if "J" in given else ([], 0)
    if indices and given.get("r") == "n":
        raise Refusal("cannot submit non-rerunable Array Job", 1)
    if indices and not settings.arrays:
        raise Refusal(f"Error: in queue {queue} job arrays are not allowed", 32)
    resources.check(wanted.asked)
    chunks = resources.chunks(wanted.asked, queue, settings.queues[queue], settings.lines)
    depend = attributes.dependencies(wanted.extra["depend"], settings.server) if "depend" in wanted.extra else []
    doomed = resources.unknown(wanted.asked)
    held = "u" if "h" in given else "s" if depend else None
    job = Job(
        id="",
        shown={
            "Job_Name": attributes.name(name),
            "Job_Owner": f"{environment.user()}@{platform.node()}",
            "job_state": "H" if held else "Q",
            "queue": queue if held == "u" else f"{queue}-exec",  # routed once it is not held
            "server": settings.server,
            "ctime": stamp(),
            "Hold_Types": held or "n",
            "Join_Path": given.get("j", "n"),
            "Keep_Files": given.get("k", "n"),
            "mtime": stamp(),
            "Rerunable": str(given.get("r", "y" if indices else "n") == "y"),  # Gadi: only with -r y
            "Resource_List": _shown_resources(wanted.asked, chunks),
            "substate": 22 if depend else 20 if held else 10,
            "Variable_List": environment.listed(server, queue, wanted.asked, chunks)
            | (environment.everything() if "V" in given else {})
            | attributes.variables(given.get("v", ""), os.environ),
            "qtime": stamp(),
            "project": given.get("P", "_pbs_project_default"),
            "Submit_arguments": " ".join(sys.argv[1:]),
        }
        | ({"depend": wanted.extra["depend"]} if depend else {})
        | ({"array": True, "array_indices_submitted": given["J"]} if indices else {}),
        chunks=chunks,
        scatter="scatter" in wanted.asked.get("place", "") or "select" not in wanted.asked,
        limit=resources.seconds(wanted.asked.get("walltime", "")),
        program=program,
        depend=depend,
        doomed=doomed,
        direct="d" in given.get("k", "n"),
        umask=_umask(wanted.extra.get("umask", "077")),
        most=most,
    )
    job = job.show(Output_Path=given.get("o", ""), Error_Path=given.get("e", ""))
    each = replace(job.show(array=None, depend=None, job_state="Q"), depend=[], array="[]")
    return [job, *(replace(each, index=index) for index in indices)]


def _umask(text: str) -> int:
    try:
        return int(text, 8)
    except ValueError:
        raise IllegalValueError("W") from None


def _shown_resources(asked: dict[str, str], chunks: list[resources.Chunk]) -> dict[str, object]:
    shown: dict[str, object] = dict(asked)
    if "walltime" in asked:
        shown["walltime"] = resources.clock(resources.seconds(asked["walltime"]) or 0)
    if "wd" in asked:
        shown["wd"] = 1  # to PBS it is 0 without a value; the hook sees that it is there
    if "select" not in asked:
        first = chunks[0]
        gpus = f":ngpus={first.ngpus}" if first.ngpus else ""
        shown["select"] = f"{len(chunks)}:ncpus={first.ncpus}{gpus}:mpiprocs={first.lines}"
    totals = {"ncpus": sum(chunk.ncpus for chunk in chunks), "ngpus": sum(chunk.ngpus for chunk in chunks)}
    shown |= {name: total for name, total in totals.items() if total}
    return shown | {"nodect": len(chunks)}


def _number(server: Server, job: Job, number: int) -> Job:
    """Give the job its id, and its output files their names."""
    suffix = f".{server.settings.server}"
    parent = f"{number}[]{suffix}" if job.array or job.shown.get("array") else ""
    job_id = f"{number}[{job.index}]{suffix}" if job.array else parent or f"{number}{suffix}"
    shown = {}
    for attribute, letter in (("Output_Path", "o"), ("Error_Path", "e")):
        index = ".^array_index^" if parent else ""
        given = str(job.shown[attribute]) or f"{job.shown['Job_Name']}.{letter}{number}{index}"
        path = f"{Path.cwd() / given.rpartition(':')[2]}" + ("/" if given.endswith("/") else "")
        shown[attribute] = f"{platform.node()}:{path}"
    job = replace(job, id=job_id, array=parent if job.array else "").show(**shown)
    if not job.array:
        return job
    text = {name: str(job.shown[name]).replace("^array_index^", str(job.index)) for name in shown}
    return job.show(**text, array_id=parent, array_index=job.index)


def _wait(server: Server, job_id: str) -> int:
    """Return the job's exit status once it has ended (-W block=true)."""
    while True:
        job = server.outcome(job_id)
        if job:
            return int(job.shown.get("Exit_status", 1)) % 256
        if not server.find(job_id) and not server.outcome(job_id):
            return 1
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
