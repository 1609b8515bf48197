"""The config files: the user's hpclaunch.yaml, and those of the current folder and the folders above it.

They are merged key by key. The preset wins over the section of the site, and that over general keys, in whichever files
they stand; among equals the nearer file wins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hpclaunch import paths
from hpclaunch.cli.echo import talk
from hpclaunch.errors import HpclaunchError, did_you_mean, nearest
from hpclaunch.job.request import Request
from hpclaunch.profile.types import Word
from hpclaunch.profile.yamlfile import Document, Key, convert

NAME = "hpclaunch.yaml"
# What belongs to a cluster: in a general section it counts for the site that this names, and not on this machine.
OF_A_SITE = (
    "partition", "account", "qos", "gpus_per_node", "jobfs_gb", "module", "container", "network", "storage",
    "directive", "template",
)  # fmt: skip
_SECTIONS = ("sites", "presets")
# Variables that are no option's, and those of a job that are set outside of job scripts too.
_VARIABLES = {"HPCLAUNCH_PATH", "HPCLAUNCH_JOB_ID", "HPCLAUNCH_TERMINAL", "HPCLAUNCH_PRESET"}


class _File(Request, frozen=True, kw_only=True):
    """What a config file may have: the keys of a request, and sections with the same keys."""

    sites: dict[str, Request] = {}
    presets: dict[Word, Request] = {}


class Config(msgspec.Struct):
    """The config files, nearest first, the chosen preset, and the sections that were used last, strongest first."""

    files: list[Document]
    preset: str | None = None
    used: list[Document] = []

    def use(self, site: str | None, cluster: bool = True) -> dict[str, Any]:
        """Return the options of a job at `site`, and note the sections that they are from.

        Without `cluster` a general value that belongs to a cluster does not count. Raises ProfileError.
        """
        general = [*self._sections("presets", self.preset), *(_general(file) for file in self.files)]
        if site:
            name = _stem(site)
            sections = [_for_site(one, name, cluster) for one in general]
            presets = len(sections) - len(self.files)
            self.used = [*sections[:presets], *self._sections("sites", name), *sections[presets:]]
        else:
            self.used = general
        return _options(self.used)

    @property
    def presets(self) -> list[str]:
        """Return the names of the presets."""
        return [name for file in self.files for name in file.data.get("presets") or ()]

    def _sections(self, kind: str, name: str | None) -> list[Document]:
        found = (file.find((kind, name)) for file in self.files if name)
        return [
            Document(file.path, place[0], file.data[kind][name] or {})
            for file, place in zip(self.files, found, strict=False)
            if place
        ]


def documents() -> list[Document]:
    """Return the config files that are there, the nearest first. Raises ProfileError if one cannot be read."""
    return [Document.read(path) for path in _files()]


def read(preset: str | None) -> Config:
    """Read the config files, and name on stderr those that may be somebody else's and variables that mean nothing.

    Raises ProfileError with the mistakes of a file, and HpclaunchError for an unknown preset.
    """
    config = Config(documents(), preset)
    for file in config.files:
        convert([file], _File, _mistakes)
    if foreign := [paths.shown(file.path) for file in config.files if not paths.is_trusted(file.path)]:
        talk(f"config: {', '.join(foreign)}")
    if preset and preset not in config.presets:
        raise HpclaunchError(f"--preset {preset}: there is no such preset{did_you_mean(preset, config.presets)}")
    if "HPCLAUNCH_RUN_DIR" not in os.environ:  # else a job's own variables are here
        names = {f"HPCLAUNCH_{name.upper()}" for name in Request.__struct_fields__} | _VARIABLES
        for name in os.environ:
            if name.startswith("HPCLAUNCH_") and not name.startswith("HPCLAUNCH_TEST_") and name not in names:
                talk(f"warning: {name}: no option has this variable{nearest(name, names)}")
    return config


def _files() -> Iterator[Path]:
    """Yield the config files that are there, the nearest first; what anybody can put above this folder is left out."""
    here, home = Path.cwd(), paths.home().resolve()
    above = [folder for folder in here.parents if folder.is_relative_to(home) or not here.is_relative_to(home)]
    for path in (Path(NAME), *(folder / NAME for folder in above), paths.user_config() / NAME):
        if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a folder that cannot be searched
            if path.stat().st_uid in (0, os.geteuid()) or not path.absolute().parent.stat().st_mode & 0o002:
                yield path
            else:
                talk(f"warning: {path}: another user's file in a folder that all can write to, not read")


def _mistakes(file: _File) -> Iterator[tuple[Key, str]]:
    for name, section in file.sites.items():
        if section.site is not None:
            yield ("sites", name, "site"), "the section is that site's; remove this line"


def _general(file: Document) -> Document:
    return Document(file.path, file.root, {key: file.data[key] for key in file.data if key not in _SECTIONS})


def _for_site(section: Document, site: str, cluster: bool) -> Document:
    """Return a general section without what belongs to another cluster."""
    if cluster and _stem(section.data.get("site") or site) == site:
        return section
    return Document(
        section.path, section.root, {key: section.data[key] for key in section.data if key not in OF_A_SITE}
    )


def _stem(site: str) -> str:
    return Path(site).name.removesuffix(".yaml")


def _options(sections: list[Document]) -> dict[str, Any]:
    """Return the values of merged sections as options; of `command` and `workload` the stronger."""
    values = msgspec.to_builtins(convert(sections, Request)) if sections else {}
    for section in sections:
        if named := [name for name in ("command", "workload") if section.data.get(name)]:
            for other in {"command", "workload"}.difference(named):
                values.pop(other, None)
            break
    return as_options(values)


def as_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a request as options, its variables as those of --env."""
    env = [f"{name}={value}" for name, value in values.pop("env", {}).items()] + values.pop("pass_env", [])
    return values | ({"env": env} if env else {})


def variables_of(settings: Iterable[str]) -> set[str]:
    """Return the names of the variables that values of --env set or pass on."""
    return {setting.partition("=")[0] for setting in settings}
