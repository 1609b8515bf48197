"""Stand-ins for apptainer, singularity and podman-hpc, by the name they are called: strict about options and mounts.

The command runs on this machine, in the folder that was asked for, and finds what its runtime was told in IN_IMAGE.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Check the words and run the command, as a child that gets the signals of this process."""
    name = Path(sys.argv[0]).name
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("action", choices=["run" if name == "podman-hpc" else "exec"])
    environment = dict(os.environ)
    if name == "podman-hpc":
        for option in ("--rm", "--env-host", "--gpu"):
            parser.add_argument(option, action="store_true")
        for option in ("--network", "--ipc", "--pid"):
            parser.add_argument(option, choices=["host"], required=True)
        parser.add_argument("--workdir", dest="pwd", required=True)
        parser.add_argument("--volume", dest="bind", action="append", default=[])
    else:
        for option in ("--nv", "--rocm"):
            parser.add_argument(option, action="store_true")
        parser.add_argument("--pwd", required=True)
        parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if name == "podman-hpc":
        if not options.env_host:
            environment = {"PATH": os.environ["PATH"]}
    elif not Path(options.image).exists():
        parser.error(f"could not open image {options.image}")
    sources = [mount.split(":")[0] for mount in options.bind]
    if missing := [source for source in sources if not Path(source).exists()]:
        parser.error(f"mount source {missing[0]} doesn't exist")
    if not any(Path(options.pwd).is_relative_to(source) for source in sources):
        parser.error(f"{options.pwd} is not in the image")
    environment["IN_IMAGE"] = json.dumps(vars(options) | {"name": name})
    child = subprocess.Popen(options.command, env=environment, cwd=options.pwd)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: child.send_signal(received))
    code = child.wait()
    sys.exit(128 - code if code < 0 else code)


main()
