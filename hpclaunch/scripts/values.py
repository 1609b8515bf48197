"""Values of directives as the schedulers read them: see hpclaunch.schedulers.values."""

from hpclaunch.schedulers.values import count, pbs_gb, pbs_seconds, slurm_gb, slurm_seconds, whole, whole_gb

__all__ = ["count", "pbs_gb", "pbs_seconds", "slurm_gb", "slurm_seconds", "whole", "whole_gb"]
