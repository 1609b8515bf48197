"""How the doctor tells shared folders from local ones, and reads room and quotas."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hpclaunch.doctor import folders

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
10.0.0.1@o2ib:/scratch /scratch lustre rw 0 0
/dev/sdb1 /my\\040disk xfs rw 0 0
overlay /home/over overlay rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("/scratch/ab12/me", "ok"),
        ("/home/me", "ok"),
        ("/home/over/me", "warning"),
        ("/homestead", "warning"),
        ("/my disk/x", "warning"),
        ("/tmp/x", "problem"),  # noqa: S108
    ],
)
def test_shared_folders_are_told_from_local_ones(path, verdict, monkeypatch):
    """A run folder on a network file system is well, one on this host's disk doubtful, one in /tmp wrong."""
    find = folders.mount_of
    monkeypatch.setattr(folders, "mount_of", lambda folder: find(folder, MOUNTS))
    patient = SimpleNamespace(folder=Path(path), profile=SimpleNamespace(site=SimpleNamespace(scheduler="slurm")))
    assert [finding.verdict for finding in folders.shared(patient)] == [verdict]


@pytest.mark.parametrize(
    ("gb", "files", "verdict"),
    [(100, 10**6, "ok"), (5, 10**6, "warning"), (0.5, 10**6, "problem"), (100, 500, "problem"), (100, 5000, "warning")],
)
def test_room_is_space_and_files(gb, files, verdict, monkeypatch, tmp_path):
    """A file system without space, or without room for more files, is told."""
    status = SimpleNamespace(f_bavail=int(gb * 1e9), f_frsize=1, f_favail=files, f_files=10**7)
    monkeypatch.setattr(folders.os, "statvfs", lambda _: status)
    (finding,) = folders.room(SimpleNamespace(folder=tmp_path))
    assert finding.verdict == verdict


def test_quotas_are_read_as_quota_and_lfs_print_them():
    """Space and files, soft limit before hard, over or near it, wrapped behind a long name or not."""
    lfs = "/scratch/of/a/very/long/name\n        950*    900    1000       -      12       0      0       -\n"
    assert list(folders._quotas(lfs, {"/scratch/of/a/very/long/name"})) == [("kB", 950, 900)]
    quota = (
        "Disk quotas for user me (uid 1000):\n  Filesystem blocks quota limit grace files quota limit grace\n"
        "  /dev/sda1 10 0 100 0 7 0 7 0\n  /dev/sdb1 1 1 1 0 1 1 1 0\n"
    )
    assert list(folders._quotas(quota, {"/dev/sda1", "/"})) == [("kB", 10, 100), ("files", 7, 7)]
    assert list(folders._quotas("Disk quotas for user me: none", {"/"})) == []
