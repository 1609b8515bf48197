"""Whether the run folder and our own can be written, other nodes see the run folder, and there is room."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpclaunch.doctor.result import Patient, Result, ok, problem, warning
from hpclaunch.paths import user_state
from hpclaunch.schedulers import scheduler

# Types of file systems, https://man7.org/linux/man-pages/man5/filesystems.5.html and clusters' own
NETWORK = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "panfs", "wekafs", "afs", "pvfs2", "9p"}
NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/jobfs")  # noqa: S108 - not seen by other nodes
LEAST_GB, FEW_GB = 1, 10
LEAST_FILES, FEW_FILES = 1_000, 10_000


def probe(patient: Patient) -> Iterator[Result]:
    """Look at the folder of submission and at the one that has the list of the user's jobs."""
    folder = patient.folder.resolve()
    yield _writable("run folder", folder, "submit from a folder that you may write to; the run folder is made there")
    if not scheduler(patient.profile.site.scheduler).here:
        yield _shared(folder, Path("/proc/self/mounts").read_text(errors="replace"))
    yield _room(folder)
    yield _writable("own folders", user_state(), "make it writable, or set XDG_STATE_HOME to a folder that is")


def _writable(name: str, folder: Path, remedy: str) -> Result:
    """Write 1 MB where `folder` is or will be: what is full, or over its quota, takes a file without content."""
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".hpclaunch-doctor-") as file:
            file.write(bytes(1_000_000))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return problem(name, f"{there}: {error.strerror}", remedy)
    return ok(name, f"{folder} can be written")


def _shared(folder: Path, mounts: str) -> Result:
    """Judge by its file system, of those in the text of /proc/self/mounts, whether compute nodes see the folder."""
    fields = [line.replace(r"\040", "\0").split(" ") for line in reversed(mounts.splitlines())]  # the later one hides
    places = [(point.replace("\0", " "), kind) for _, point, kind, *_ in fields]
    point, kind = max((place for place in places if folder.is_relative_to(place[0])), key=lambda place: len(place[0]))
    where = f"{folder} is on {kind} ({point})"
    remedy = "submit from a folder on the site's shared file system, such as its scratch or work space"
    if kind in {"tmpfs", "ramfs"} or any(folder.is_relative_to(place) for place in NODE_LOCAL):
        return problem("shared", f"{where}: only this host sees it, compute nodes have their own", remedy)
    if kind in NETWORK or kind.startswith("fuse."):
        return ok("shared", where)
    return warning("shared", f"{where}: compute nodes see it only if this host shares it with them", remedy)


def _room(folder: Path) -> Result:
    """Look for free space and free inodes on the run folder's file system."""
    status = os.statvfs(folder)
    free, files = status.f_bavail * status.f_frsize / 1e9, status.f_favail
    found = f"{free:,.1f} GB free"
    if status.f_files:  # some file systems have no fixed number
        found += f", {files:,} more files"
    else:
        files = FEW_FILES
    remedy = "remove old checkpoints and hpclaunch-runs/*, or submit from a file system with more room"
    if free < LEAST_GB or files < LEAST_FILES:
        return problem("room", found, remedy)
    return warning("room", found, remedy) if free < FEW_GB or files < FEW_FILES else ok("room", found)
