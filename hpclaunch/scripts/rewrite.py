"""A script as hpclaunch would write it: the request that asks for the same job."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from hpclaunch.errors import RequestError
from hpclaunch.job.checks.words import SHELLS_OWN
from hpclaunch.job.plan import NO_MODULES
from hpclaunch.job.request import Request, make_request
from hpclaunch.scripts.around import joined, part
from hpclaunch.scripts.asked import Asked
from hpclaunch.scripts.body_traps import needed_storage
from hpclaunch.scripts.complete import complete
from hpclaunch.scripts.examine import Report, is_shell
from hpclaunch.scripts.launch import Launch, name_of, opened
from hpclaunch.scripts.lexer import Lexer, plain
from hpclaunch.scripts.program import Program, Start, assignments
from hpclaunch.scripts.same import kept, sure
from hpclaunch.scripts.setup import Entry, Setup, names_in, words_of
from hpclaunch.scripts.shell import Command, Statement

# What is to be evaluated once, by the job script: $( ), elements of arrays, the script's arguments, numbers by chance.
_HOISTED = re.compile(
    r"\$\((?!\()|\$\{\w+\[[^]@*]*\]\}|`[^`]*`|\$[1-9]|\$\{[1-9][^}]*\}|\$\$|\$\{?(?:RANDOM|SECONDS|EPOCHSECONDS)\b\}?"
)
_SAFE = re.compile(r"[\w./:=,@%+-]+")
_LOOPS = ("for", "while", "until")


class Rewrite(Struct):
    """The request of the new script, what it lacks of the old one, and why there is none where there is none."""

    request: Request | None
    notes: list[tuple[int, str]]
    problems: list[tuple[int, str]]
    told: list[tuple[int, str]] = []  # what the new script has and the old one had otherwise


def rewrite(report: Report, typed: dict[str, Any]) -> Rewrite:
    """Return the request that asks for what the script does, with what was typed on top."""
    assert report.asked is not None  # noqa: S101 - the caller has seen to it
    assert report.program is not None  # noqa: S101
    program, asked = report.program, report.asked
    result = Rewrite(None, [(line, f"`{what}`: {why}") for line, what, why in asked.left], [])
    start = _main(report.lines, program, asked, result)
    if start is None:
        return result
    site = report.profile.site
    uses = {plain(word) for command in program.body.commands() if command.words[:2] == ["module", "use"]
            for word in command.words[2:]}  # fmt: skip
    lifts = not site.module_paths or bool(uses & set(site.module_paths))
    setup = Setup(site, asked.partition, program, lifts, False, [], None, {}, [], [], [], start.launch.opened)
    values = complete(asked, start.launch)
    first = kept(asked, start, values, result)
    _before(setup, program, start, report.lines, first)
    command, needed = _command(setup, start, first)
    sure(report, start, values, result)
    if start.launch.problem:
        result.problems.append((start.launch.line, start.launch.problem))
    entries = setup.settle(needed)
    lines = [line or " " for entry in entries for line in entry.text.split("\n")]
    exports = _exports(entries, needed - set(setup.env))
    for name in sorted(SHELLS_OWN & set(exports) - {name for entry in entries for name in entry.sets}):
        setup.own(start.launch.line, name)  # set in a file that the script sources
    if exports:
        lines.append(f"export {' '.join(exports)}")
    for entry in entries:
        if not all(line.isprintable() for line in entry.text.split("\n")):
            result.problems.append((entry.line, "a control character, which cannot be carried"))
    result.notes += setup.notes
    result.problems += setup.problems
    _around(result, setup, start, report.lines)
    storage = [*asked.values.get("storage", []), *needed_storage(asked, report.lines)]
    values |= {
        "module": list(dict.fromkeys(setup.modules)) or NO_MODULES,
        "venv": setup.venv,
        "env": {**asked.values.get("env", {}), **setup.env},
        "setup": lines,
        "storage": list(dict.fromkeys(storage)),
        "directive": [text for _, text in asked.carried if not re.match(r"--signal[\s=]\s*R?B", text)],
        "command": command,
        "job_name": asked.values.get("job_name") or _name(start),
    }
    _request(result, values | typed)
    return result


def _exports(entries: list[Entry], needed: set[str]) -> list[str]:
    """Return the variables of the command that the lines before it set and do not export."""
    texts = [entry.text.lstrip() for entry in entries]
    found = {name for entry, text in zip(entries, texts, strict=True) if not text.startswith("export ")
             for name in entry.sets}  # fmt: skip
    if any(text.startswith(("source ", ". ", "eval ")) for text in texts):  # which may set any of them
        found |= {name for name in needed if not name.startswith(("SLURM_", "PBS_"))}
    exported = {name for text in texts for name in re.findall(r"^export (\w+)", text)}
    return sorted(needed & found - exported)


def _request(result: Rewrite, values: dict[str, Any]) -> None:
    try:
        result.request = make_request(values)
    except RequestError as error:
        result.problems += [(0, line) for line in str(error).splitlines()]


def _main(lines: list[str], program: Program, asked: Asked, result: Rewrite) -> Start | None:
    """Return the one command that the job is for; say why where there is none."""
    if not is_shell(lines[0]):
        result.problems.append((1, f"{lines[0].strip()}: only scripts of bash and its like can be written anew"))
        return None
    if program.body.error:
        result.problems.append((program.body.error.line, str(program.body.error)))
        return None
    starts = program.main
    if not starts:
        result.problems.append((0, "no command was found that the job could be for"))
        return None
    if len(starts) > 1:
        where = " and ".join(str(start.launch.line) for start in starts[:4])
        result.problems.append((starts[1].launch.line, f"lines {where} all start something: make a script of each"))
        return None
    start = starts[0]
    near = start.launch.layer("srun") if start.command.joint == "&" else None
    fan_out = start.statement.block in _LOOPS and (near or start.launch.layer("pbsdsh", "ssh")) is not None
    if start.statement.block and not fan_out:
        what = {"function": "a function", "(": "a subshell", "{": "a group"}.get(start.statement.block, "")
        what = what or f"{'an' if start.statement.block == 'if' else 'a'} `{start.statement.block}`"
        result.problems.append((start.launch.line, f"the command is inside of {what}: what it does is not known"))
    if start.launch.problem:
        result.problems.append((start.launch.line, start.launch.problem))
    result.problems += [*joined(start), *part(asked, start, fan_out)]
    if any(re.match(r"\d*<", redirect) for redirect in start.command.redirects):
        result.problems.append((start.launch.line, "the command reads what `<` gives it, and ranks have no stdin"))
    if fan_out:
        loop = re.match(r"\s*for\s+\(*\s*(\w+)", lines[start.statement.first - 1])
        if loop and loop[1] in names_in(" ".join(start.launch.words)):
            text = f"the command uses ${loop[1]}, which counts nodes here: let it read NODE_RANK or RANK"
            result.problems.append((start.launch.line, text))
    opaque = start.launch.program in ("bash", "sh") or start.launch.program.endswith(".sh")
    if opaque and start.launch.layer("pbsdsh", "ssh"):
        text = f"`{' '.join(start.launch.words)[:60]}` is started on each node: give hpclaunch the command inside of it"
        result.problems.append((start.launch.line, text))
    return None if result.problems else start


def _before(setup: Setup, program: Program, start: Start, lines: list[str], first: list[Command]) -> None:
    """Sort what comes before the command, and what prepares it inside of its quotes, but for what is `first` there."""
    shared = _shared(program.body.statements)
    for statement in program.body.statements:
        if statement is start.statement:
            break
        setup.statement(statement, lines, not shared & set(range(statement.first, statement.last + 1)))
    if not start.statement.block:
        for command in start.statement.commands:
            if command is start.command:
                break
            setup.command(command, words_of(command) + (" || exit 1" if command.joint == "&&" else ""))
    for setting in start.launch.env:
        name, _, value = setting.partition("=")
        if (constant := plain(value)) is not None and constant.isprintable():
            setup.env[name] = constant
        else:
            setup.command(_export(start.launch.line, setting), f"export {setting}")
    for command in start.launch.before:
        if not any(command is one for one in first):
            setup.command(command, " ".join(command.words))


def _export(line: int, setting: str) -> Command:
    return Command(line, ["export", setting])


def _shared(statements: list[Statement]) -> set[int]:
    """Return the numbers of the lines on which more than one statement stands."""
    seen: set[int] = set()
    shared: set[int] = set()
    for statement in statements:
        own = set(range(statement.first, statement.last + 1))
        shared |= own & seen
        seen |= own
    return shared


def _command(setup: Setup, start: Start, first: list[Command]) -> tuple[list[str], set[str]]:
    """Return the command's words, or a `bash -c` where the shell has something to do in them; and its variables."""
    raw = [inner for word in start.launch.words for inner in _elements(start.launch, word)]
    words = [_resolve(word, setup.program.variables) for word in raw]
    plains = [plain(word) for word in words]
    if all(word is not None for word in plains) and not first:
        return [word for word in plains if word is not None], set()
    if any(re.search(r"\$[@*]|\$\{[@*]", word) for word in words):
        start.launch.problem = "the command has the script's own arguments in it: write what they are"
    text = _hoist(setup, " ".join(words), start.launch.line)
    before = "".join(f"{words_of(command)}{' && ' if command.joint == '&&' else '; '}" for command in first)
    own = {name for command in first for name, _, _ in assignments(command)}
    return ["bash", "-c", f"{before}exec {text}"], names_in(before + text) - own


def _elements(launch: Launch, word: str) -> list[str]:
    """Return an array's elements in place of "${NAME[@]}": arrays cannot be exported."""
    if not re.fullmatch(r'"?\$\{\w+\[[@*]\]\}"?', word):
        return [word]
    elements = opened(launch, word)
    if elements:
        launch.opened.add(re.sub(r"\W", "", word))
    else:
        launch.problem = f"{word}: an array that is not known here, and none can reach the ranks"
    return elements or [word]


def _resolve(word: str, variables: dict[str, str]) -> str:
    """Replace the variables of a word whose values are plain text in the script."""
    if "'" in word or "\\" in word:
        return word

    def value(found: re.Match[str]) -> str:
        text = variables.get(found[1] or found[2], "")
        return text if _SAFE.fullmatch(text) else found[0]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, word)


def _hoist(setup: Setup, text: str, line: int) -> str:
    """Take out of a command what is to be evaluated once, and not on every rank; quotes keep what is in them."""
    out, at, double, count = [], 0, False, 0
    while at < len(text):
        letter = text[at]
        if letter == "'" and not double:
            end = text.find("'", at + 1) + 1 or len(text)
        elif letter == "\\":
            end = at + 2
        elif found := _HOISTED.match(text, at):
            end = found.end() if not found[0].endswith("(") else at + 1 + _closed(text[at + 1 :])
            count += 1
            setup.statement(Statement(line, line, [_export(line, f"ARGUMENT_{count}={text[at:end]}")]), [], False)
            out.append(f"${{ARGUMENT_{count}}}")
            at = end
            continue
        else:
            double ^= letter == '"'
            end = at + 1
        out.append(text[at:end])
        at = end
    return "".join(out)


def _closed(text: str) -> int:
    lexer = Lexer(text)
    lexer.nested("(", ")")
    return lexer.at


def _around(result: Rewrite, setup: Setup, start: Start, lines: list[str]) -> None:
    """Note what of the start itself is not carried, and what comes after it."""
    layers = " ".join(f"{layer.kind} {' '.join(layer.words)}".strip() for layer in start.launch.layers)
    if layers:
        result.notes.append((start.launch.line, f"`{layers[:100]}`: hpclaunch starts the ranks itself"))
    later = start.statement.commands[start.statement.commands.index(start.command) + 1 :]
    if start.command.redirects or any(name_of(command.words[0]) == "tee" for command in later if command.words):
        result.notes.append((start.launch.line, "where the output goes: it is in hpclaunch-runs/JOB_ID/rank-N.log"))
    if not start.statement.block:
        for command in later:
            if command.words and name_of(command.words[0]) != "tee":
                result.notes.append((command.line, f"`{' '.join(command.words)[:60]}`: it comes after the command"))
    elif start.statement.block in _LOOPS:
        result.notes.append((start.statement.first, "the loop over the nodes: hpclaunch starts them itself"))
    statements = setup.program.body.statements
    shared = _shared(statements)
    after = statements[statements.index(start.statement) + 1 :]
    for statement in after:
        alone = statement.block or not shared & set(range(statement.first, statement.last + 1))
        text = " ".join((lines[statement.first - 1] if alone else setup.text(statement, lines, False)).split())
        result.notes.append((statement.first, f"`{text[:60]}`: it comes after the command"))


def _name(start: Start) -> str | None:
    """Name the job after its program, where the command hides it in a shell's text."""
    for word in start.launch.words:
        if found := re.search(r"([\w.+-]+)\.(py|sh)[\"']?$", word):
            return re.sub(r"[^A-Za-z0-9._+-]", "_", found[1])
    return None
