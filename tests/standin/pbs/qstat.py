"""qstat: shows jobs, as a table, in full, or in full as JSON; queues and the server as JSON."""

from __future__ import annotations

import getopt
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from standin.pbs import scheduler
from standin.pbs.qdel import ID
from standin.pbs.refusal import Refusal
from standin.pbs.server import Job, Server

from hpclaunch.rehearsal.processes import MARK

NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
ROW = "{:<17} {:<16} {:<16}  {:>8} {} {}"
VERSION = "23.06.06"


def main() -> int:
    """Show the jobs; return qstat's exit code: 35 if one has finished and -x is not there, 153 if one is unknown."""
    server = Server(Path(os.environ[MARK]))
    try:
        given, ids = getopt.getopt(sys.argv[1:], "xtfaEHBQF:u:")
        options = dict(given)
    except getopt.GetoptError as error:
        print(f"qstat: invalid option -- '{error.opt}'", file=sys.stderr)
        return _usage()
    if ("-u" in options and "-f" in options) or options.get("-F", "json") not in {"json", "default"}:
        return _usage()
    if "-B" in options or "-Q" in options:
        return _described(server, ids, queues="-Q" in options)
    if ("-x" in options or "-H" in options) and not server.settings.history:
        return _no_history(server, ids)
    scheduler.cycle(server)
    if server.settings.answers_one and "-E" not in options and options.get("-F") == "json":
        ids = ids[:1]
    history, code, found = "-x" in options or "-H" in options, 0, []
    for job_id in ids:
        try:
            found += _named(server, job_id, history, "-t" in options)
        except Refusal as error:
            print(f"qstat: {error}", file=sys.stderr)
            code = max(code, error.code)
    if not ids:
        everything = server.live() + (server.finished() if history else [])
        found = [job for job in everything if "-t" in options or not job.array]
    if "-f" in options and options.get("-F") == "json":
        print(_document(server, found))
    elif "-f" in options:
        print("".join(_full(job) for job in found), end="")
    elif found:
        print(_table(found))
    return code


def _no_history(server: Server, ids: list[str]) -> int:
    """Refuse to show a job, also one that lives, as OpenPBS does in req_stat_job; qstat's exit code is 0 then."""
    print(f"qstat: PBS is not configured to maintain job history {' '.join(ids)}".rstrip(), file=sys.stderr)
    print(_document(server, []))
    return 0


def _described(server: Server, names: list[str], queues: bool) -> int:
    """Print the server, or its queues, as JSON; return 170 if one of `names` is no queue."""
    document: dict[str, Any] = _head(server)
    own = {"default_queue": server.settings.default_queue, "job_history_enable": str(server.settings.history)}
    if not queues:
        document["Server"] = {server.settings.server: {"server_state": "Active", "scheduling": "True", **own}}
    else:
        wanted = {name: queue for name, queue in server.settings.queues.items() if not names or name in names}
        document["Queue"] = {
            name: {
                "queue_type": "Execution",
                "resources_max": {"walltime": f"{max(hours for _, hours in queue.walltime)}:00:00"}
                if queue.walltime
                else {},
                "enabled": "True",
                "started": "True",
            }
            for name, queue in wanted.items()
        }
    unknown = [name for name in names if name not in document.get("Queue", names)]
    for name in unknown:
        print(f"qstat: Unknown queue destination {name}", file=sys.stderr)
    if not unknown:
        print(json.dumps(document, indent=4))
    return 170 if unknown else 0


def _usage() -> int:
    print("usage: qstat [-x] [-t] [-E] [-f [-F json]] [-u user] [job_identifier...]", file=sys.stderr)
    return 2


def _named(server: Server, job_id: str, history: bool, subjobs: bool) -> list[Job]:
    if not ID.fullmatch(job_id):
        raise Refusal(f"illegally formed job identifier: {job_id}", 1)
    job = server.find(job_id if "." in job_id else f"{job_id}.{server.settings.server}")
    if not job:
        raise Refusal(f"Unknown Job Id {job_id}", 153)
    if job.state == "F" and not history:
        raise Refusal(f"{job.id} Job has finished, use -x or -H to obtain historical job information", 35)
    return [job, *(server.subjobs(job.id) if subjobs and job.is_array else [])]


def _document(server: Server, jobs: list[Job]) -> str:
    """Return the JSON, without "Jobs" if there are none."""
    document = _head(server)
    if jobs:
        document["Jobs"] = {job.id: _numbers(job.shown) for job in jobs}
    return json.dumps(document, indent=4)


def _head(server: Server) -> dict[str, Any]:
    return {"timestamp": int(time.time()), "pbs_version": VERSION, "pbs_server": server.settings.server}


def _numbers(value: Any) -> Any:
    """Return text that looks like a number as one, wherever it stands (OpenPBS 23.06, seen in Variable_List)."""
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return value


def _full(job: Job) -> str:
    lines = [f"Job Id: {job.id}"]
    for name, value in job.shown.items():
        if name == "Variable_List":
            lines.append(f"    {name} = " + ",".join(f"{key}={part}" for key, part in value.items()))
        elif isinstance(value, dict):
            lines += [f"    {name}.{key} = {part}" for key, part in value.items()]
        else:
            lines.append(f"    {name} = {value}")
    return "\n".join([*lines, "", ""])


def _table(jobs: list[Job]) -> str:
    lines = [ROW.format("Job id", "Name", "User", "Time Use", "S", "Queue")]
    lines.append(ROW.format("-" * 16, "-" * 16, "-" * 16, "-" * 8, "-", "-" * 5))
    for job in jobs:
        owner = str(job.shown["Job_Owner"]).partition("@")[0]
        used = job.shown.get("resources_used", {}).get("walltime", "0")
        name, queue = str(job.shown["Job_Name"])[:15], job.shown["queue"]
        lines.append(ROW.format(job.id[:17], name, owner[:15], used, job.state, queue))
    return "\n".join(lines)
