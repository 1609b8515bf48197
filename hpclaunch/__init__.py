"""Launch distributed PyTorch training on any supercomputer, or here, from one command."""

__version__ = "0.1.0"
