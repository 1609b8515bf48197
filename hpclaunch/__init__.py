"""Launch distributed PyTorch training on any supercomputer, or here, from one command."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["executor"]


def __getattr__(name: str) -> Any:
    """Import `executor` on demand: the command line starts without submitit."""
    if name == "executor":
        from hpclaunch.executors import executor

        return executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
