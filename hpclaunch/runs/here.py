"""Run a job script on this machine: its run folder, and bash in place of this process."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from hpclaunch.errors import HpclaunchError
from hpclaunch.job.plan import Plan
from hpclaunch.paths import shipped, write_whole
from hpclaunch.runs import registry, terminal
from hpclaunch.schedulers import run_folder

_MISSING = "import importlib.util as u, sys; print(*(m for m in sys.argv[1:] if not u.find_spec(m)))"


def check_torch(plan: Plan) -> None:
    """Raise HpclaunchError if the job needs torch and the python of this machine has none.

    With an environment of its own, a venv or an image, a job finds that out itself. A rehearsal has our own python.
    """
    least: dict[str | None, list[str]] = {None: [], "env": [], "allreduce": ["torch"]}
    path = os.environ.get("PATH", os.defpath) if plan.scheduler.here else str(Path(sys.executable).parent)
    torchrun, request, python = plan.launcher == "torchrun", plan.request, shutil.which(plan.python, path=path)
    needs = least.get(plan.workload, ["torch", "pytorch_lightning"]) or ["torch"] * torchrun
    if not needs or not python or request.venv or request.container or request.setup or plan.site.setup:
        return
    done = subprocess.run([python, "-c", _MISSING, *needs], capture_output=True, text=True, check=False)
    if missing := done.stdout.strip().replace("_", "-"):
        use = f"pip install {missing}, or --{'launcher tasks' if torchrun else 'workload env, which needs none'}"
        raise HpclaunchError(f"{python} has no {missing.replace(' ', ' and no ')}; use {use}")


def run(script: str, job_id: str, plan: Plan, *, terminal_for_rank: bool = False, **variables: str) -> NoReturn:
    """Save `script` and its plan in the run folder `job_id` below the current one and become the bash that runs it.

    With `terminal_for_rank` this process stays between the user's terminal and that of a rank.
    Signals and the exit code are then the script's own. Raises HpclaunchError if the folder cannot be written.
    """
    path = Path(run_folder.RUNS, job_id, run_folder.SCRIPT)
    try:
        path.parent.mkdir(parents=True)
        write_whole(path, script.encode(errors="surrogateescape"))  # mode 0600, as there may be keys in it
        write_whole(path.with_name(run_folder.PLAN), registry.encode(plan.hidden(), indent=2))
    except OSError as error:
        raise HpclaunchError(f"{path.parent}: cannot be written: {error.strerror}") from None
    sys.stdout.flush()
    sys.stderr.flush()
    if terminal_for_rank:
        variables[terminal.VARIABLE] = terminal.lend()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the script
    folders = {str(Path.cwd()), os.environ.get("PWD", "")}  # the script's is the latter, if it is right
    names = "\n".join(f"HPCLAUNCH_RUN_DIR={folder}/{path.parent}" for folder in folders)
    try:
        subprocess.run(
            ["bash", "-c", (shipped("templates") / "guard.sh").read_text(), "guard", str(os.getpid())],
            input=names.encode(errors="surrogateescape"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        os.execvpe("bash", ["bash", str(path.absolute())], os.environ | variables)
    except OSError as error:
        raise HpclaunchError(f"bash: {error.strerror}") from None
