"""Show the place of each rank, and check that the places fit together; needs no torch.

    hpclaunch run --nodes 2 --tasks-per-node 2 --workload env        two emulated nodes on this machine
    hpclaunch submit --site gadi --nodes 2 --workload env            a job
    hpclaunch submit --site gadi --nodes 2 -- python env.py          the same with a copy of this file
    torchrun --nproc-per-node 4 env.py                               by hand

Rank 0 prints a row for each rank and reports what is wrong, with exit code 1. If the launcher starts one process a node
(`lightning`, no RANK), there is a row for each node. The ranks exchange files in a folder that all nodes see
($HPCLAUNCH_RUN_DIR, else the current one), so that a wrong MASTER_ADDR hides no row.
"""

import argparse
import ipaddress
import json
import os
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]

# What must be the same everywhere, or often is: printed once, if it is.
ALIKE = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
OFTEN_ALIKE = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
COLUMNS = ("RANK", "NODE_RANK", "LOCAL_RANK", *ALIKE, *OFTEN_ALIKE, "cpus", "pid", "host")


def own_row() -> Row:
    """Return the variables of this process, numbers as int, and its host. Raises ValueError if it has no place."""
    row: Row = {"MASTER_ADDR": ""} | {name: os.environ[name] for name in COLUMNS if name in os.environ}
    if "GROUP_RANK" in os.environ:  # torchrun's name for it
        row.setdefault("NODE_RANK", os.environ["GROUP_RANK"])
    ranks = ("RANK", "LOCAL_RANK") if row.keys() & {"RANK", "LOCAL_RANK"} else ()
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", *ranks, "MASTER_PORT"):
        value = row.get(name, "not set")
        if not value.isdecimal():
            raise ValueError(f"{name} is {value}; start this with hpclaunch or torchrun, or set it as they do")
        row[name] = int(value)
    row["place"] = row["RANK"] if ranks else row["NODE_RANK"]
    row["expected"] = row["WORLD_SIZE"] if ranks else -(-row["WORLD_SIZE"] // row["LOCAL_WORLD_SIZE"])
    return row | {"cpus": len(os.sched_getaffinity(0)), "pid": os.getpid(), "host": socket.gethostname()}


def look_for_master(row: Row) -> Row:
    """Return how this host sees MASTER_ADDR: its address, and whether that is one of this host; nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(row["MASTER_ADDR"], None, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        return {"no_master": str(error)}
    with socket.socket(family, kind) as probe:
        try:
            probe.bind((address[0], 0))
            owned = True
        except OSError:
            owned = False
    return {"master": address[0], "owns_master": owned}


def collect(folder: Path, count: int, seconds: float) -> list[Row]:
    """Return the rows of all processes that come in time, sorted, and remove their files."""
    end = time.monotonic() + seconds
    rows: dict[Path, Row] = {}
    complete = False
    while not complete:
        complete = len(rows) >= count or time.monotonic() > end
        time.sleep(1 if complete else 0.1)  # a process too many comes about when the last one does
        with suppress(FileNotFoundError):  # another rank 0 was faster
            # NFS may cache a folder's content for a minute, but not past a change by this host.
            look = folder / f"look-{os.getpid()}"
            look.touch()
            look.unlink()
            for path in set(folder.glob("*.json")) - rows.keys():
                rows[path] = json.loads(path.read_text())
    for path in rows:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: a row came too late
        folder.rmdir()
    return sorted(rows.values(), key=lambda row: row["place"])


def mistakes(rows: list[Row]) -> Iterator[str]:
    """Yield what does not fit together in the rows; ranks are numbered node by node."""
    first, unit = rows[0], "rank" if "RANK" in rows[0] else "node"
    if len({"RANK" in row for row in rows}) > 1:
        yield "RANK is set for some processes and not for others"
        return
    if missing := set(range(first["expected"])) - by(rows, "place").keys():
        yield f"{named(unit, missing)} did not come"
    for name in ALIKE:
        if len(values := by(rows, name)) > 1:
            parts = [f"{value} on {named(unit, by(those, 'place'))}" for value, those in values.items()]
            yield f"{name} is not the same for all: {'; '.join(parts)}"
    for row in rows:
        found, right = (row["NODE_RANK"], row.get("LOCAL_RANK")), divmod(row["place"], first["LOCAL_WORLD_SIZE"])
        if unit == "rank" and found != right:
            place = f"rank {row['RANK']} on {row['host']} has NODE_RANK {found[0]} and LOCAL_RANK {found[1]}"
            yield f"{place}: with LOCAL_WORLD_SIZE {first['LOCAL_WORLD_SIZE']} it should have {right[0]} and {right[1]}"
            break  # the others follow from it
    hosts, nodes = by(rows, "host"), by(rows, "NODE_RANK")
    # Emulated nodes share this machine, and meet at its loopback address; a real host is one node.
    if len(hosts) != len(nodes) and not ipaddress.ip_address(first.get("master", "127.0.0.1")).is_loopback:
        yield f"{named('node', nodes)} should have a host each, and are on {', '.join(hosts)}"
    for host, (row, *_) in hosts.items():
        name = f"MASTER_ADDR {row['MASTER_ADDR']}"
        if "no_master" in row:
            yield f"{name} is not known on {host}: {row['no_master']}"
        elif row["owns_master"] != (host == first["host"]) and first["place"] == 0:
            yield f"{name} is {row['master']} on {host}; it should be an address of {first['host']}, where rank 0 is"


def by(rows: list[Row], name: str) -> dict[Any, list[Row]]:
    """Group rows by the value of a column."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.get(name)].append(row)
    return groups


def named(unit: str, numbers: Iterable[int]) -> str:
    """Return numbers as ranges: `ranks 0-2, 5`."""
    ordered = sorted(set(numbers))
    starts = [i for i in ordered if i - 1 not in ordered]
    ends = [i for i in ordered if i + 1 not in ordered]
    ranges = ", ".join(f"{a}-{b}" if a < b else str(a) for a, b in zip(starts, ends, strict=True))
    return f"{unit}{'s' if len(ordered) > 1 else ''} {ranges}"


def table(rows: list[Row]) -> str:
    """Return the rows as a table, with what is the same for all above it."""
    alike = [name for name in (*ALIKE, *OFTEN_ALIKE) if name in rows[0] and len(by(rows, name)) == 1]
    columns = [name for name in COLUMNS if name not in alike and any(name in row for row in rows)]
    cells = [columns, *([str(row.get(name, "-")) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    return "\n".join([f"the same for all: {' '.join(f'{name}={rows[0][name]}' for name in alike)}", *lines])


def meet(row: Row, folder: Path, seconds: float) -> list[Row]:
    """Leave the row for rank 0; return all of them on rank 0, and none elsewhere once rank 0 has taken this one."""
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{row['place']}-{row['host']}-{row['pid']}.json"
    own.with_suffix(".part").write_text(json.dumps(row))
    own.with_suffix(".part").replace(own)  # whole or not at all
    try:
        if row["place"] == 0:
            return collect(folder, row["expected"], seconds)
        end = time.monotonic() + 2 * seconds + 5  # rank 0 may come that late and wait that long for others
        while own.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"no rank 0 came to {folder} within {2 * seconds + 5:g} s")
            time.sleep(0.1)
        return []
    finally:
        own.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show each rank's place, and whether the places fit together.")
    parser.add_argument("--seconds", type=float, default=30, help="how long to wait for the others (%(default)g)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no row behind
    try:
        row = own_row()
        row |= look_for_master(row)
        folder = f"env-{os.environ.get('HPCLAUNCH_ATTEMPT', '1')}"
        rows = meet(row, Path(os.environ.get("HPCLAUNCH_RUN_DIR", ""), folder), args.seconds)
    except (ValueError, OSError) as error:
        place = f"rank {os.environ.get('RANK', '?')} on {socket.gethostname()}, pid {os.getpid()}"
        sys.exit(f"env.py: {place}: {error}")
    if not rows:
        return
    print(table(rows), flush=True)
    if reasons := list(mistakes(rows)):
        sys.exit("\n".join(f"env.py: {reason}" for reason in reasons))
    nodes, hosts = named("node", by(rows, "NODE_RANK")), len(by(rows, "host"))
    print(f"all fit together: world size {row['WORLD_SIZE']}, {nodes} on {hosts} {'host' if hosts == 1 else 'hosts'}")


if __name__ == "__main__":
    main()
