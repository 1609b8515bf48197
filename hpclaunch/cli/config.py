"""The config files: hpclaunch.yaml of the current folder, of the folders above it, and of the user's config folder.

They are merged key by key. A preset wins over a site's section, that over general keys; among equals the nearer file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from hpclaunch import paths
from hpclaunch.cli.echo import talk
from hpclaunch.errors import HpclaunchError, did_you_mean, nearest
from hpclaunch.job.request import Request
from hpclaunch.profile.types import Word
from hpclaunch.profile.yamlfile import Document, convert

NAME = "hpclaunch.yaml"
# What belongs to a cluster: in a general section it counts for the site that this names, and not on this machine.
OF_A_SITE = (
    "partition", "account", "qos", "gpus_per_node", "jobfs_gb", "module", "container", "network", "storage",
    "directive", "template",
)  # fmt: skip
OF_CLUSTERS = (*OF_A_SITE, "mail", "mail_on")  # not of this machine
_PROGRAM = ("command", "workload")  # which exclude each other


class _File(Request, frozen=True, kw_only=True):
    """What a config file may have: the keys of a request, and sections with the same keys."""

    sites: dict[str, Request] = {}
    presets: dict[Word, Request] = {}


class Config(msgspec.Struct):
    """The config files, nearest first, and the preset; or the request of the run that is made again, and its code."""

    files: list[Document] = []
    preset: str | None = None
    again: dict[str, Any] | None = None
    code: str = ""
    jobs: Any = None  # those of a sweep, of that run
    used: list[Document] = []  # the sections that counted last, strongest first

    def use(self, site: str, cluster: bool) -> dict[str, Any]:
        """Return the options of a job at `site`, without `cluster` those that do not belong to one; set `used`."""
        if self.again is not None:
            return self.again
        presets = self._sections("presets", self.preset)
        general = [*presets, *(_without(file, ("sites", "presets")) for file in self.files)]
        for i, one in enumerate(general):
            if site and not (cluster and Path(one.data.get("site", site)).name.removesuffix(".yaml") == site):
                general[i] = _without(one, OF_A_SITE if cluster else OF_CLUSTERS)
        self.used = [*general[: len(presets)], *self._sections("sites", site), *general[len(presets) :]]
        strongest = next((one.data for one in self.used if {*_PROGRAM} & {*one.data}), {})
        values = msgspec.to_builtins(convert(self.used, Request)) if self.used else {}
        return as_options({key: values[key] for key in values if key in strongest or key not in _PROGRAM})

    def _sections(self, kind: str, name: str | None) -> list[Document]:
        found = [(file, file.find((kind, name))) for file in self.files if name]
        return [structs.replace(file, root=at[0], data=file.data[kind][name] or {}) for file, at in found if at]


def read(preset: str | None) -> Config:
    """Read the config files, and name on stderr those that may be somebody else's and variables that mean nothing.

    Raises ProfileError with the mistakes of a file, and HpclaunchError for an unknown preset.
    """
    files = [Document.read(path) for path in _files()]
    for file in files:
        convert([file], _File)
    if foreign := [file.shown for file in files if not paths.is_trusted(file.path)]:
        talk(f"config: {', '.join(foreign)}")
    known = {f"HPCLAUNCH_{name.upper()}" for name in (*Request.__struct_fields__, "path", "preset")}
    for name in os.environ if "HPCLAUNCH_RUN_DIR" not in os.environ else ():  # a job has variables of its own
        if name.startswith("HPCLAUNCH_") and not name.startswith("HPCLAUNCH_TEST_") and name not in known:
            talk(f"warning: {name}: no option has this variable{nearest(name, known)}")
    presets = [name for file in files for name in file.data.get("presets") or ()]
    if preset and preset not in presets:
        raise HpclaunchError(f"--preset {preset}: there is no such preset{did_you_mean(preset, presets)}")
    return Config(files, preset)


def _files() -> Iterator[Path]:
    """Yield the config files that are there, the nearest first, but not what anybody can put above this folder."""
    here, home = Path.cwd(), paths.home().resolve()
    above = [folder for folder in here.parents if folder.is_relative_to(home) or not here.is_relative_to(home)]
    for path in (Path(NAME), *(folder / NAME for folder in above), paths.user_config() / NAME):
        if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a folder that cannot be searched
            if path.stat().st_uid in (0, os.geteuid()) or not path.absolute().parent.stat().st_mode & 0o002:
                yield path
            else:
                talk(f"warning: {path}: another user's file in a folder that all can write to, not read")


def _without(section: Document, keys: Iterable[str]) -> Document:
    return structs.replace(section, data={key: section.data[key] for key in section.data if key not in keys})


def as_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a request as options, its variables as those of --env."""
    env = [f"{name}={value}" for name, value in values.pop("env", {}).items()] + values.pop("pass_env", [])
    return values | ({"env": env} if env else {})
