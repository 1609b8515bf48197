"""Whether the run folder can be written, other nodes see it, there is room, and the clocks agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from hpclaunch import paths
from hpclaunch.doctor.result import ASK_SECONDS, Patient, Result, Verdict, ok, problem, warning
from hpclaunch.schedulers import scheduler
from hpclaunch.schedulers.machine import user
from hpclaunch.schedulers.run_folder import RUNS

# https://man7.org/linux/man-pages/man5/filesystems.5.html and what clusters add
NETWORK = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "panfs", "wekafs", "afs", "pvfs2", "9p"}
IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}
NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/jobfs")  # noqa: S108 - not seen by other nodes
LEAST_GB, FEW_GB = 1, 10
LEAST_FILES, FEW_FILES = 1_000, 10_000
NEARLY_FULL = 0.95
CLOCK_SECONDS = 2.0


class Mount(Struct, frozen=True):
    """A file system: its device, mount point and type."""

    device: str
    point: str
    kind: str


def mount_of(path: Path, table: str | None = None) -> Mount | None:
    """Return the file system that holds `path`, which must be resolved, by /proc/self/mounts."""
    table = Path("/proc/self/mounts").read_text(errors="replace") if table is None else table
    mounts = []
    for line in table.splitlines():
        device, point, kind, *_ = (
            re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), word) for word in line.split(" ")
        )
        if path == Path(point) or Path(point) in path.parents:
            mounts.append(Mount(device, point, kind))
    return max(reversed(mounts), key=lambda mount: len(mount.point), default=None)  # of two on one point the later


def writable(patient: Patient) -> Iterator[Result]:
    """Write a file where the run folder will be; by its time, compare the clocks."""
    folder = next(folder for folder in (patient.folder / RUNS, patient.folder) if folder.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".hpclaunch-doctor-") as file:
            now = time.time()
            os.utime(file.fileno())  # to the file server's own time
            apart = abs(os.fstat(file.fileno()).st_mtime - now)
    except OSError as error:
        yield problem(
            "run folder",
            f"{folder}: {error.strerror}",
            "submit from a folder that you may write to; the run folder is made there",
        )
        return
    yield ok("run folder", f"{folder} can be written")
    if apart > CLOCK_SECONDS:
        yield warning(
            "clock",
            f"this host and the file server are {apart:.0f} s apart",
            "tell the site's support; times in logs and checkpoints will not fit together",
        )
    else:
        yield ok("clock", "this host and the file server agree")


def shared(patient: Patient) -> Iterator[Result]:
    """Tell by its file system whether compute nodes see the run folder."""
    folder = patient.folder.resolve()
    mount = mount_of(folder)
    if mount is None or scheduler(patient.profile.site.scheduler).here:
        return
    where = f"{folder} is on {mount.kind} ({mount.point})"
    remedy = "submit from a folder on the site's shared file system, such as its scratch or work space"
    in_local = [place for place in NODE_LOCAL if Path(place) == folder or Path(place) in folder.parents]
    if in_local or mount.kind in IN_MEMORY:
        found = f"{where}: only this host sees it, compute nodes have their own"
        yield problem("shared", found, remedy)
    elif mount.kind in NETWORK or mount.kind.startswith("fuse."):
        yield ok("shared", where)
    else:
        found = f"{where}: compute nodes see it only if this host shares it with them"
        yield warning("shared", found, remedy)


def room(patient: Patient) -> Iterator[Result]:
    """Look for free space and free inodes on the run folder's file system."""
    status = os.statvfs(patient.folder)
    free, files = status.f_bavail * status.f_frsize / 1e9, status.f_favail
    counts_files = status.f_files > 0  # some file systems have no fixed number
    found = f"{free:,.1f} GB free" + (f", {files:,} more files" if counts_files else "")
    remedy = "remove old checkpoints and hpclaunch-runs/*, or submit from a file system with more room"
    if free < LEAST_GB or (counts_files and files < LEAST_FILES):
        yield problem("room", found, remedy)
    elif free < FEW_GB or (counts_files and files < FEW_FILES):
        yield warning("room", found, remedy)
    else:
        yield ok("room", found)


def quota(patient: Patient) -> Iterator[Result]:
    """Ask for the user's quota on the run folder's file system, if a standard command knows it."""
    mount = mount_of(patient.folder.resolve())
    if mount is None:
        return
    words = ["lfs", "quota", "-q", "-u", user(), mount.point] if mount.kind == "lustre" else ["quota", "-w", "-p"]
    if not shutil.which(words[0]):
        return
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=ASK_SECONDS,
    )  # quota's own exit code is 1 where one is exceeded
    for what, used, most in _quotas(done.stdout, {mount.device, mount.point}):
        found = f"{used:,} of {most:,} {what} used on {mount.point}"
        remedy = "remove what you no longer need, or ask for more; a full quota ends jobs in the middle of a checkpoint"
        full = used / most
        verdict: Verdict = "problem" if full >= 1 else "warning" if full >= NEARLY_FULL else "ok"
        yield Result("quota", verdict, found, "" if verdict == "ok" else remedy)


def _quotas(text: str, names: set[str]) -> Iterator[tuple[str, int, int]]:
    """Read `FILESYSTEM kB quota limit grace files quota limit grace`, as both commands print it."""
    words = text.split()
    for i, word in enumerate(words):
        if word in names and len(words) >= i + 9:
            numbers = [re.fullmatch(r"\[?(\d+)\*?\]?", field) for field in words[i + 1 : i + 9]]
            for what, at in (("kB", 0), ("files", 4)):
                used, soft, hard = (int(match[1]) if match else 0 for match in numbers[at : at + 3])
                if most := soft or hard:
                    yield what, used, most


def own_folders(_patient: Patient) -> Iterator[Result]:
    """Look whether hpclaunch may keep its registry of runs and its cache."""
    uses = (
        (paths.user_state(), problem, "has the list of your jobs", "XDG_STATE_HOME"),
        (paths.user_cache(), warning, "makes hpclaunch faster", "XDG_CACHE_HOME"),
    )
    for folder, verdict, use, variable in uses:
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if os.access(there, os.W_OK | os.X_OK) and there.is_dir():
            yield ok("own folders", f"{folder} can be written")
        else:
            found = f"{there} cannot be written, and {folder} {use}"
            yield verdict("own folders", found, f"make it writable, or set {variable} to a folder that is")


PROBES = {"run folder": writable, "shared": shared, "room": room, "quota": quota, "own folders": own_folders}
