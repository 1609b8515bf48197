"""The request: what the user asked for, nothing filled in. Options and the config file have its keys."""

import re
import shlex
from collections.abc import Container
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from hpclaunch.errors import RequestError
from hpclaunch.profile.types import Count, Launcher, Line, Price, Record, Variable, Word, matches
from hpclaunch.profile.yamlfile import mistakes

# What PBS accepts (OpenPBS ck_job_name.c); Slurm makes a file name of it.
JobName = Annotated[str, matches(r"[A-Za-z0-9._+-]{1,230}", "at most 230 letters, digits and ._+-")]
Text = Annotated[str, matches(r"[^\x00]*", "text without a zero byte")]
Nodes = Annotated[str, matches(r"[1-9][0-9]{0,8}:[1-9][0-9]{0,8}", "a number, or MIN:MAX in quotes")]
HIDES = "(?i)(KEY|TOKEN|SECRET|CREDENTIAL)S?(?![A-Z])|PASSW"  # names of variables; not TOKENIZERS
NONE = ["none"]  # none of the profile's modules but a partition's own, or of its storage and what lies there
HIDDEN = "(hidden)"
# These do not change the script.
_NOT_IN_PROVENANCE = ("command", "machine", "jobs", "max_cost", "confirm_above", "host", "remote_folder")


class Machine(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What only this machine knows of a request (hpclaunch.job.machine)."""

    cores: int | None = None  # of this machine, if the job runs on it
    links: dict[str, str] = {}  # where paths of the request lead
    missing_folders: dict[str, bool] = {}  # folders of its output that are not there; if that is sure
    image_problem: str = ""  # why there can be no such container
    image_folders: list[str] = []  # in which images must lie, as far as known
    files_missing: list[str] = []  # sources of its staging
    files_are_final: bool = False  # the job sees the same files
    staged_gb: float = 0  # what is copied to each node, archives as they are
    program_problem: str = ""  # why the command's program cannot run here
    program_is_final: bool = False  # nor can it run as a job
    snapshot: str = ""  # the name of the code that the job runs
    program_saves: bool = True  # it seems to save before the walltime and to continue later


class Basis(Struct, frozen=True):
    """The keys that a value was made from, and the formula in words, "" if the value is a key's as it is.

    A key is `request.NAME`, `site.NAME` or `partition.NAME`, with `:ITEM` for one item of it; or `plan.NAME`, another
    value of the plan, which has a basis of its own.
    """

    keys: tuple[str, ...] = ()
    words: str = ""


class Request(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What the user asked for; an absent value means the site's default. A config file has the same keys."""

    site: Line | None = None
    nodes: Count | Nodes | None = None  # Of the training; MIN:MAX takes what is free.
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    walltime: Line | None = None
    gpus_per_node: Annotated[int, Meta(ge=0)] | None = None
    tasks_per_node: Count | None = None
    cpus_per_task: Count | None = None
    mem_gb: Count | None = None  # Memory per node in GB.
    jobfs_gb: Count | None = None  # Node-local disk per node in GB.
    job_name: JobName | None = None
    launcher: Launcher | None = None
    module: list[Line] = []
    setup: list[Line] = []
    teardown: list[Line] = []
    venv: Line | None = None
    container: Line | None = None  # Run the command in this image.
    stage_in: list[Line] = []  # Copy to each node's own disk first, as SRC or SRC:DEST.
    stage_out: list[Line] = []  # Copy back from each node's own disk at the end, as SRC:DEST.
    env: dict[Variable, Text] = {}
    pass_env: list[Variable] = []  # Variables whose values come from where the job is submitted.
    network: Word | None = None  # Network variables of the profile by name, or none.
    storage: list[Word] = []
    directive: list[Line] = []
    template: Line | None = None
    mail: Word | None = None  # The scheduler's own mail.
    mail_on: Annotated[str, matches(r"(begin|end|fail)(,(begin|end|fail))*", "some of begin,end,fail")] | None = None
    max_attempts: Count | None = None
    max_restarts: Count | None = None  # Restarts of the ranks inside the allocation, at most.
    min_nodes: Count | None = None  # Go on with fewer nodes, down to this many, if some die.
    spares: Count | None = None  # Idle nodes besides, each to replace one that dies.
    warn_before: Line | None = None
    hang_after: Line | None = None
    max_cost: Price | None = None  # Refuse a job that may cost more, in the site's unit.
    confirm_above: Price | None = None  # Submitting what may cost more needs a confirmation.
    snapshot: bool | None = None  # Run the code as it was at submission.
    host: Line | None = None  # Submit on this host, by ssh.
    remote_folder: Line | None = None  # The folder on that host below which each run has its own.
    preflight: bool | None = None  # Test the nodes before the ranks start.
    workload: Word | None = None
    force: list[Word] = []  # Checks whose refusals only warn.
    command: list[Text] = []
    machine: Machine = Machine()
    jobs: Count = 1  # So many differ in some values only; this is the first.

    def command_line(self) -> str:
        """Return the `hpclaunch render` command that makes this request's script again, on one line of shell."""
        words = ["hpclaunch", "render"]
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in _NOT_IN_PROVENANCE or value is None:
                continue
            if isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{name}")
                continue
            if isinstance(value, dict):
                value = [key if re.search(HIDES, key) else f"{key}={text}" for key, text in value.items()]
            for item in value if isinstance(value, list) else [value]:
                words += [f"--{'env' if name == 'pass_env' else name.replace('_', '-')}", str(item)]
        if self.command:
            words += ["--", *self.command]
        return " ".join(map(quote, words))

    def hidden(self) -> "Request":
        """Return the request without the values of variables whose names say that they are secret."""
        return replace(self, env={key: HIDDEN if re.search(HIDES, key) else text for key, text in self.env.items()})

    def check_passed(self, environment: Container[str]) -> None:
        """Raise RequestError with each variable of `pass_env` that is not in `environment`."""
        if missing := [name for name in self.pass_env if name not in environment]:
            raise RequestError(
                *(f"--env {name}: not set here; export {name} first, or give --env {name}=VALUE" for name in missing)
            )


def make_request(values: dict[str, Any], mistaken: list[tuple[str, str]] | None = None) -> Request:
    """Return the request with these values, by the names of its keys.

    Raises RequestError with a line for each wrong value. If `mistaken` is given, wrong values are left out instead, and
    each option and what is wrong with it are added there.
    """
    values = {name: value for name, value in values.items() if value not in (None, (), [], {})}
    try:
        return convert(values, Request)
    except ValidationError:
        found = [(str(key[0]), message) for key, message in mistakes(values, Request)]
        if mistaken is None:
            words = ((name.removeprefix("pass_").replace("_", "-"), message) for name, message in found)
            raise RequestError(*(f"--{option}: {message}" for option, message in words)) from None
    mistaken += found
    return make_request({name: value for name, value in values.items() if name not in dict(found)})


def quote(word: str) -> str:
    """Quote `word` for the shell on one line: control characters are escaped, so that a comment stays a comment."""
    if word.isprintable():
        return shlex.quote(word)
    spelled = "".join(
        c if c.isprintable() and c not in "\\'" else "".join(rf"\x{b:02x}" for b in c.encode(errors="surrogateescape"))
        for c in word
    )
    return f"$'{spelled}'"
