"""From a plan to the job script. Templates print values and compute none."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hpclaunch import __version__, paths
from hpclaunch.errors import NOT_SHIPPED, TemplateError, did_you_mean
from hpclaunch.job.plan import Plan
from hpclaunch.job.request import quote
from hpclaunch.schedulers import Scheduler

SUFFIX = ".sh.j2"
_COMMENTS: Any = {"comment_start_string": "{##", "comment_end_string": "##}"}  # {# is in the shell's ${#array[@]}


class Cache(jinja2.FileSystemBytecodeCache):
    """Compiled templates, in a folder that only this user can write; without one there is no cache, and no message.

    Compiling takes a third of the time of `hpclaunch render`. What is loaded is code, so it must be this user's.
    """

    def __init__(self, folder: Path) -> None:
        self.usable = False
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
            self.usable = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        super().__init__(str(folder), "sandboxed-%s.cache")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load `bucket` if it can be read."""
        with suppress(OSError, EOFError, ValueError, TypeError):
            if self.usable:
                super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Save `bucket` if it can be written."""
        with suppress(OSError):
            if self.usable:
                super().dump_bytecode(bucket)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of templates, which may be anyone's: they can read values, but not reach a scheduler."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may read an attribute."""
        return not (isinstance(obj, Scheduler) and callable(value)) and super().is_safe_attribute(obj, attr, value)


def render(plan: Plan) -> tuple[str, list[Path]]:
    """Return the job script of `plan`, the same bytes for the same plan, and those of its templates not shipped.

    Its second line names the profiles and templates that are not shipped: the templates cannot leave it out.
    Raises TemplateError if the template is missing or broken, or asks for something other than what the plan has.
    """
    script, templates = fill(plan)
    if templates:
        from hpclaunch.job.readback import check

        check(plan, script, templates)
    if foreign := [*plan.foreign, *map(paths.shown, templates)]:
        shebang, end, rest = script.partition("\n") if script.startswith("#!") else ("", "", script)
        script = f"{shebang}{end}# {NOT_SHIPPED.capitalize()} {' '.join(map(quote, foreign))}\n{rest}"
    return script, templates


def fill(plan: Plan, kind: Callable[..., Sandbox] = Sandbox) -> tuple[str, list[Path]]:
    """Return what the templates print for `plan`, and those of them that are not shipped ones.

    `kind` makes the environment, for one that sees more than the text. Templates may be anybody's, so it is a sandbox:
    they reach the plan's values, and no other part of Python.
    Raises TemplateError if the template is missing or broken.
    """
    wanted = plan.request.template or plan.site.template or plan.site.scheduler
    folders = [str(folder.resolve()) for folder in paths.search_path("templates")]
    if "/" in wanted or wanted.endswith(".j2"):
        folders.insert(0, str(Path(wanted).resolve().parent))
        wanted = Path(wanted).name
    name = wanted if wanted.endswith(".j2") else wanted + SUFFIX
    # A user's own template wins over a shipped one and reaches it as "builtin/NAME".
    shipped = jinja2.PrefixLoader({"builtin": jinja2.FileSystemLoader(folders[-1])})
    packs = jinja2.FunctionLoader(
        lambda name: jinja2.FileSystemLoader(paths.in_packs("templates")).get_source(environment, name)
    )
    environment = kind(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(folders), shipped, packs]),
        **_COMMENTS,
        bytecode_cache=Cache(paths.user_cache()) if kind is Sandbox else None,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML; the filter `sh` quotes
    )
    environment.filters.update(sh=quote, path=_path, expand=_expand)
    try:
        script = environment.get_template(name).render(
            plan=plan, version=__version__, provenance=plan.request.command_line()
        )
    except jinja2.TemplateNotFound as error:
        missing = str(error.name)
        known = {file.name.removesuffix(SUFFIX) for folder in folders for file in Path(folder).glob("*" + SUFFIX)}
        raise TemplateError(f"no template {missing!r}{did_you_mean(missing.removesuffix(SUFFIX), known)}") from None
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{error.filename or error.name}:{error.lineno}: {error.message}") from None
    except Exception as error:  # a template is a program, which may fail in any way
        raise TemplateError(f"template {name}: {str(error) or type(error).__name__}") from None
    used = [*(environment.cache or {}).values()][::-1]  # in the order of loading: each before what it extends
    files = [Path(str(template.filename)) for template in used]
    foreign = [file for file in files if not paths.is_shipped(file)]
    for file in foreign:
        _check_blocks(environment.parse(file.read_text(encoding="utf-8")), file, used[files.index(file) + 1 :])
    return script, foreign


def page(name: str, **values: Any) -> str:
    """Return the HTML that a shipped template makes of these values, which are escaped in it."""
    loader = jinja2.FileSystemLoader(paths.shipped("templates"))
    return jinja2.Environment(loader=loader, autoescape=True, **_COMMENTS).get_template(name).render(values)


def _check_blocks(tree: jinja2.nodes.Template, file: Path, above: Iterable[jinja2.Template]) -> None:
    """Reject a block that no template above this one has: Jinja leaves it out without a word."""
    known = {name for template in above for name in template.blocks}
    for block in tree.body if tree.find(jinja2.nodes.Extends) else ():
        if isinstance(block, jinja2.nodes.Block) and block.name not in known:
            hint = did_you_mean(block.name, known)
            raise TemplateError(f"template {file}:{block.lineno}: unknown block {block.name!r}{hint}")


def _path(text: str) -> str:
    """Quote a path; a leading ~ stays the home folder of the machine on which the job runs."""
    if text == "~" or text.startswith("~/"):
        return '"$HOME"' + quote(text[1:]) if text[1:] else '"$HOME"'
    return _expand(text) if "$" in text else quote(text)


def _expand(text: str) -> str:
    """Quote a profile's value so that $NAME and ${NAME} are expanded, and nothing else."""
    quoted = re.sub(r'[\\"`]', r"\\\g<0>", text)
    return '"' + re.sub(r"\$(?!\w|\{\w+\})", r"\\$", quoted) + '"'
