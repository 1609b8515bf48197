"""How the doctor tells shared folders from local ones, and judges the room."""

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
def test_shared_folders_are_told_from_local_ones(path, verdict):
    """A run folder on a network file system is well, one on this host's disk doubtful, one in /tmp wrong."""
    assert folders._shared(Path(path), MOUNTS).verdict == verdict


@pytest.mark.parametrize(
    ("gb", "files", "verdict"),
    [(100, 10**6, "ok"), (5, 10**6, "warning"), (0.5, 10**6, "problem"), (100, 500, "problem"), (100, 5000, "warning")],
)
def test_room_is_space_and_files(gb, files, verdict, monkeypatch, tmp_path):
    """A file system without space, or without room for more files, is told."""
    status = SimpleNamespace(f_bavail=int(gb * 1e9), f_frsize=1, f_favail=files, f_files=10**7)
    monkeypatch.setattr(folders.os, "statvfs", lambda _: status)
    assert folders._room(tmp_path).verdict == verdict
