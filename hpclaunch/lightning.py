"""For every Lightning script: go on in the next attempt of its job. The code: workloads/resume.py."""

from hpclaunch.workloads.resume import SaveAndLeave, resume_path, trainer_places

__all__ = ["SaveAndLeave", "resume_path", "trainer_places"]
