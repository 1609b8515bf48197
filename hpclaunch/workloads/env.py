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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]

NUMBERS = ("RANK", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
# What should be the same everywhere, or often is: printed once, if it is.
ALIKE = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
OFTEN_ALIKE = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
COLUMNS = ("RANK", "NODE_RANK", "LOCAL_RANK", *ALIKE, *OFTEN_ALIKE, "cpus", "pid", "host")


def own_row() -> Row:
    """Return the variables of this process, numbers as int, and its host."""
    row: Row = {name: os.environ[name] for name in COLUMNS if name in os.environ}
    if "GROUP_RANK" in os.environ:  # torchrun's word for it
        row.setdefault("NODE_RANK", os.environ["GROUP_RANK"])
    row |= {name: int(row[name]) for name in NUMBERS if row.get(name, "").isdecimal()}
    return row | {"cpus": len(os.sched_getaffinity(0)), "pid": os.getpid(), "host": socket.gethostname()}


def unusable(row: Row) -> Iterator[str]:
    """Yield why this process has no place."""
    in_pairs = ("RANK", "LOCAL_RANK") if row.keys() & {"RANK", "LOCAL_RANK"} else ()
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", *in_pairs, "MASTER_ADDR", "MASTER_PORT"):
        if name not in row:
            yield f"{name} is not set; start it with hpclaunch or torchrun, or set it as they do"
        elif name in NUMBERS and not isinstance(row[name], int):
            yield f"{name} is {row[name]!r}, which is not a number"
        elif name.endswith("SIZE") and row[name] < 1:
            yield f"{name} is {row[name]}, it must be at least 1"
        elif name == "MASTER_PORT" and not 0 < row[name] < 65536:
            yield f"{name} is {row[name]}, ports are 1 to 65535"


def look_for_master(row: Row) -> Row:
    """Add how this host sees MASTER_ADDR: its address, and the local address that reaches it; nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            row["MASTER_ADDR"], row["MASTER_PORT"], type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            found = {"master": address[0], "address": probe.getsockname()[0], "owns_master": False}
        with suppress(OSError), socket.socket(family, kind) as probe:
            probe.bind((address[0], 0))  # works only with an address of this host
            found["owns_master"] = True
    except OSError as error:
        return row | {"no_master": str(error)}
    return row | found


def number(row: Row) -> int:
    """Return the rank, or the node's rank if there is one process a node."""
    place: int = row["RANK"] if "RANK" in row else row["NODE_RANK"]
    return place


def leave(row: Row, folder: Path) -> Path:
    """Write the row for rank 0, whole or not at all."""
    path = folder / f"{number(row)}-{row['host']}-{row['pid']}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(row))
    return part.replace(path)


def collect(folder: Path, expected: int, seconds: float) -> list[Row]:
    """Return the rows of all processes that come in time, sorted, and remove their files."""
    end = time.monotonic() + seconds
    rows: dict[Path, Row] = {}
    while len(rows) < expected and time.monotonic() < end:
        # NFS may cache a folder's content for a minute, but not past a change by this host.
        look = folder / f"look-{os.getpid()}"
        look.touch()
        look.unlink()
        take(folder, rows)
        time.sleep(0.1)
    time.sleep(1)  # a process too many comes about now
    take(folder, rows)
    for path in rows:
        path.unlink(missing_ok=True)
    return sorted(rows.values(), key=number)


def take(folder: Path, rows: dict[Path, Row]) -> None:
    """Read the rows that are new."""
    for path in set(folder.glob("*.json")) - rows.keys():
        with suppress(FileNotFoundError):  # another rank 0 was faster
            rows[path] = json.loads(path.read_text())


def was_taken(path: Path, seconds: float) -> bool:
    """Wait until rank 0 has taken the row, and return whether it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            path.read_bytes()  # opening asks the server of an NFS, where exists() may remember
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def mistakes(rows: list[Row], seconds: float) -> Iterator[str]:
    """Yield what does not fit together in the rows."""
    first = rows[0]
    unit = "rank" if "RANK" in first else "node"
    if len({"RANK" in row for row in rows}) > 1:
        yield "RANK is set for some processes and not for others"
        return
    expected = wanted(first)
    came = Counter(map(number, rows))
    if missing := [rank for rank in range(expected) if rank not in came]:
        yield f"{named(unit, missing)} did not come{f' within {seconds:g} s' if len(rows) < expected else ''}"
    for rank, count in came.items():
        if count > 1:
            where = " and ".join(f"pid {row['pid']} on {row['host']}" for row in rows if number(row) == rank)
            yield f"{count} processes are {unit} {rank}: {where}"
    if beyond := [rank for rank in came if rank >= expected]:
        yield f"{named(unit, beyond)}: with WORLD_SIZE {first['WORLD_SIZE']} the last is {expected - 1}"
    for variable in ALIKE:
        if len(values := by(rows, variable)) > 1:
            parts = [f"{value} on {named(unit, map(number, those))}" for value, those in values.items()]
            yield f"{variable} is not the same for all: {'; '.join(parts)}"
    if first["WORLD_SIZE"] % first["LOCAL_WORLD_SIZE"]:
        yield f"WORLD_SIZE {first['WORLD_SIZE']} is no multiple of LOCAL_WORLD_SIZE {first['LOCAL_WORLD_SIZE']}"
    yield from misplaced(rows)
    yield from master_mistakes(rows)


def misplaced(rows: list[Row]) -> Iterator[str]:
    """Yield where nodes, hosts and ranks do not fit; ranks are numbered node by node."""
    local_size = rows[0]["LOCAL_WORLD_SIZE"]
    by_ranks = "RANK" in rows[0]
    for row in rows:
        found = (row["NODE_RANK"], row.get("LOCAL_RANK"))
        if by_ranks and found != (right := divmod(row["RANK"], local_size)):
            yield (
                f"rank {row['RANK']} on {row['host']} has NODE_RANK {found[0]} and LOCAL_RANK {found[1]}: "
                f"with LOCAL_WORLD_SIZE {local_size} it should have {right[0]} and {right[1]}"
            )
            break  # the others follow from it
    for node, those in by(rows, "NODE_RANK").items():
        if len(hosts := by(those, "host")) > 1:
            yield f"NODE_RANK {node} is on {len(hosts)} hosts: {', '.join(hosts)}"
    for host, those in by(rows, "host", "address").items():
        # Emulated nodes share this machine, and its loopback address; a real host is one node.
        if len(nodes := by(those, "NODE_RANK")) > 1 and not is_loopback(those[0].get("address")):
            yield f"{named('node', nodes)} are all on {host[0]}"
        if by_ranks and len(those) > local_size * len(nodes):
            yield f"{host[0]} has {len(those)} ranks, LOCAL_WORLD_SIZE says {local_size} a node"


def master_mistakes(rows: list[Row]) -> Iterator[str]:
    """Yield where MASTER_ADDR does not lead to the host of rank 0."""
    first, master = rows[0], rows[0]["MASTER_ADDR"]
    for host, those in by(rows, "host").items():
        if "no_master" in those[0]:
            yield f"MASTER_ADDR {those[0]['MASTER_ADDR']} cannot be reached from {host}: {those[0]['no_master']}"
        elif host != first["host"] and is_loopback(those[0]["master"]):
            yield f"MASTER_ADDR {those[0]['MASTER_ADDR']} is {those[0]['master']} on {host}: {host} itself"
    if number(first) == 0 and first.get("owns_master") is False:
        yield f"MASTER_ADDR {master} ({first['master']}) is no address of {first['host']}, where rank 0 is"


def wanted(row: Row) -> int:
    """Return how many processes there should be."""
    size: int = row["WORLD_SIZE"]
    return size if "RANK" in row else -(-size // int(row["LOCAL_WORLD_SIZE"]))


def is_loopback(address: str | None) -> bool:
    return address is not None and ipaddress.ip_address(address.partition("%")[0]).is_loopback


def by(rows: list[Row], *names: str) -> dict[Any, list[Row]]:
    """Group rows by the value of a column, or by the tuple of several."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.get(names[0]) if len(names) == 1 else tuple(map(row.get, names))].append(row)
    return dict(groups)


def named(unit: str, numbers: Iterable[int]) -> str:
    """Return numbers as ranges: `ranks 0-2, 5`."""
    ranges: list[list[int]] = []
    for i in sorted(set(numbers)):
        if ranges and i == ranges[-1][1] + 1:
            ranges[-1][1] = i
        else:
            ranges.append([i, i])
    many = len(ranges) > 1 or ranges[0][0] < ranges[0][1]
    return f"{unit}{'s' if many else ''} {', '.join(f'{a}-{b}' if a < b else str(a) for a, b in ranges)}"


def table(rows: list[Row]) -> str:
    """Return the rows as a table, with what is the same for all above it."""
    alike = [column for column in (*ALIKE, *OFTEN_ALIKE) if len(by(rows, column)) == 1]
    same = " ".join(f"{column}={rows[0][column]}" for column in alike if column in rows[0])
    columns = [column for column in COLUMNS if column not in alike and any(column in row for row in rows)]
    cells = [columns, *([str(row.get(column, "-")) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    return "\n".join([f"the same for all: {same}", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description="Show each rank's place, and whether the places fit together.")
    parser.add_argument("--seconds", type=float, default=30, help="how long to wait for the others (%(default)g)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=os.environ.get("HPCLAUNCH_RUN_DIR") or ".",
        help="where the ranks meet, seen by all nodes ($HPCLAUNCH_RUN_DIR, else the current folder)",
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no row behind

    row = own_row()
    if reasons := list(unusable(row)):
        sys.exit("\n".join(f"env.py: {row['host']}, pid {row['pid']}: {reason}" for reason in reasons))
    row = look_for_master(row)
    folder = args.folder / f"env-{os.environ.get('HPCLAUNCH_ATTEMPT', '1')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = leave(row, folder)
    except OSError as error:
        sys.exit(f"env.py: {folder}: cannot be written on {row['host']}: {error.strerror}")
    try:
        if number(row) != 0:
            longest = 2 * args.seconds + 5  # rank 0 may come that late and wait that long for others
            if not was_taken(own, longest):
                sys.exit(
                    f"env.py: rank {number(row)} on {row['host']}: no rank 0 came to {folder} within {longest:g} s"
                )
            return
        rows = collect(folder, wanted(row), args.seconds)
    finally:
        own.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: a row came too late
        folder.rmdir()
    print(table(rows), flush=True)
    if reasons := list(mistakes(rows, args.seconds)):
        sys.exit("\n".join(f"env.py: {reason}" for reason in reasons))
    hosts = len(by(rows, "host", "address"))
    where = f"{named('node', by(rows, 'NODE_RANK'))} on {hosts} {'host' if hosts == 1 else 'hosts'}"
    print(f"all fit together: world size {row['WORLD_SIZE']}, {where}")


if __name__ == "__main__":
    main()
