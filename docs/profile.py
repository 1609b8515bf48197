"""Print docs/profile.md: every key of a site profile as the model has it. `make docs` writes it."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import fields

from hpclaunch.job.checks import CHECKS
from hpclaunch.profile import model
from hpclaunch.profile.schema import meanings, parts

HEAD = """\
# Keys of a site profile

A profile is one YAML file: `site_profiles/NAME.yaml` in the current folder, in a folder of `$HPCLAUNCH_PATH`, in the
user's config folder, or shipped; what is found first wins. `hpclaunch site new` writes one, `hpclaunch site check`
finds every mistake with its line, `hpclaunch site test` tries what it says, and `hpclaunch site schema` is this page
for editors. `extends: gadi` takes everything else from another profile; `null` takes a key away.

A Python package brings profiles and templates by an entry point of the group `hpclaunch.sites`, which names a package
with the folders `site_profiles` and `templates`; it is looked up only if no nearer profile has the name.

This page is made from the code by `make docs`. *Checks* are those that read the key ([checks.md](checks.md)).
"""

TABLE = """
## {title}

{sentence}

| key | value | default | meaning | checks |
|---|---|---|---|---|
"""
NAMES = {Any: "value", bool: "true, false", int: "number", str: "text", float: "number", type(None): ""}


def kind(hint: Any) -> str:
    """Return the type of a value in words, a link for a part with keys of its own."""
    inner, notes = get_args(hint), getattr(hint, "__metadata__", ())
    rules = [str(meta.extra["rule"]) for meta in notes if isinstance(meta, Meta) and meta.extra]
    if hint in NAMES:
        said = NAMES[hint]
    elif get_origin(hint) is list:
        said = f"list of {kind(inner[0])}"
    elif get_origin(hint) is dict:
        said = f"{kind(inner[0])}: {kind(inner[1])}"
    elif rules:
        said = rules[0].partition(" of ")[0].partition(",")[0].removeprefix("one ").removesuffix(" in quotes")
    elif notes:
        said = kind(inner[0])
    elif part := next(parts(hint), None):
        said = f"[{part.__name__}](#{part.__name__.lower()})"
    elif all(isinstance(one, str) for one in inner):
        said = ", ".join(f"`{one}`" for one in inner) or str(getattr(hint, "__name__", hint))
    else:
        said = ", ".join(filter(None, map(kind, inner)))
    return said


def meaning(part: type[Struct], name: str, hint: Any) -> str:
    """Return what a key means, or "" if its name says it."""
    said = meanings(part).get(name) or (getattr(next(parts(hint), None), "__doc__", None) or "").partition("\n")[0]
    return said.replace("|", "\\|").replace("<", "&lt;")


def readers(part: type[Struct], name: str) -> str:
    """Return the checks that read a key."""
    keys = {f"{part.__name__.lower()}.{name}", name if part in (model.Site, model.Partition) else ""}
    return ", ".join(f"`{check}`" for check, one in CHECKS.items() if keys & {*one.reads.split()})


def table(part: type[Struct]) -> str:
    """Return the keys of one part of a profile."""
    hints = get_type_hints(part, include_extras=True)
    rows = TABLE.format(title=part.__name__, sentence=(part.__doc__ or "").partition("\n")[0])
    for field in fields(part):
        default = field.default
        if field.required:
            default = "required"
        elif default in (None, NODEFAULT, ""):
            default = ""
        else:
            default = f"`{msgspec.json.encode(default).decode()}`"
        hint, name = hints[field.name], field.name
        rows += f"| `{name}` | {kind(hint)} | {default} | {meaning(part, name, hint)} | {readers(part, name)} |\n"
    return rows


if __name__ == "__main__":
    print(HEAD + "".join(map(table, dict.fromkeys(parts(model.Site)))), end="")  # noqa: T201 - it prints
