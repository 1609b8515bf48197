"""From a plan to the job script: templates print, nothing is computed here or there."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from hpclaunch import __version__, paths
from hpclaunch.errors import TemplateError, did_you_mean
from hpclaunch.plan import Plan
from hpclaunch.request import quote

SUFFIX = ".sh.j2"


class Cache(jinja2.FileSystemBytecodeCache):
    """Compiled templates in a folder; where it cannot be written there is no cache, and nobody is told.

    Compiling takes a third of the time of `hpclaunch render`.
    """

    def __init__(self, folder: Path) -> None:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(str(folder))

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill `bucket` if it can be read."""
        with suppress(OSError, EOFError, ValueError, TypeError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep `bucket` if it can be written."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


def render(plan: Plan, cache: Cache | None = None, kind: Callable[..., jinja2.Environment] = jinja2.Environment) -> str:
    """Return the job script of `plan`; the same plan gives the same bytes.

    `kind` makes the environment, for one that sees more than the text.
    Raises TemplateError where the template is missing or broken, or asks for another job than the plan's.
    """
    wanted = plan.request.template or plan.site.template or plan.site.scheduler
    folders = [str(folder.resolve()) for folder in paths.search_path("templates")]
    if "/" in wanted or wanted.endswith(".j2"):
        folders.insert(0, str(Path(wanted).resolve().parent))
        wanted = Path(wanted).name
    name = wanted if wanted.endswith(".j2") else wanted + SUFFIX
    environment = kind(
        # A template of a person's own wins over a shipped one and reaches it as "builtin/NAME".
        loader=jinja2.ChoiceLoader(
            [
                jinja2.FileSystemLoader(folders),
                jinja2.PrefixLoader({"builtin": jinja2.FileSystemLoader(folders[-1])}),
            ]
        ),
        comment_start_string="{##",  # {# would begin in the shell's ${#array[@]}
        comment_end_string="##}",
        bytecode_cache=cache,
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
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise TemplateError(f"template {name}: {error}") from None
    if kind is jinja2.Environment:  # any other writes marks into the script
        _read_back(plan, script, [template.filename or "" for template in (environment.cache or {}).values()])
    return script


def _read_back(plan: Plan, script: str, used: list[str]) -> None:
    """Compare a script with its plan if one of the templates used is not shipped: the tests do so for those that are.

    Raises TemplateError with every difference.
    """
    shipped = str(paths.shipped("templates").resolve())
    own = [paths.shown(file) for file in used if not file.startswith(shipped)]
    if not own or plan.run_id or plan.site.scheduler == "local" or "repeated" in plan.request.force:
        return
    from hpclaunch.script.readback import differences

    if found := [f"{', '.join(own)}: {line}" for line in differences(plan, script)]:
        raise TemplateError(*found, "fix the template, or use --force repeated")


def _path(text: str) -> str:
    """Quote a path; a leading ~ stays the home folder of the machine on which the job runs."""
    if text == "~" or text.startswith("~/"):
        return '"$HOME"' + quote(text[1:]) if text[1:] else '"$HOME"'
    return _expand(text) if "$" in text else quote(text)


def _expand(text: str) -> str:
    """Quote a profile's value so that $NAME and ${NAME} are expanded, and nothing else."""
    quoted = re.sub(r'[\\"`]', r"\\\g<0>", text)
    return '"' + re.sub(r"\$(?!\w|\{\w+\})", r"\\$", quoted) + '"'
