"""What --help prints: options in groups, examples that work, nothing torn at 80 columns."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from hpclaunch.cli import main


def commands(group: click.Group = main, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """List every command's words."""
    found = [before]
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = (*before, name)
        found += commands(command, words) if isinstance(command, click.Group) else [words]
    return found


def context_of(words) -> click.Context:
    """Return the context of the command that these words name, its own options among them, if they parse."""
    context = click.Context(main, info_name="hpclaunch", **main.context_settings)
    while isinstance(context.command, click.Group) and words:
        name, command, words = context.command.resolve_command(context, list(words))
        resilient = isinstance(command, click.Group) or not words
        context = command.make_context(name, [] if resilient else words, context, resilient_parsing=resilient)
        words = words if resilient else []
    return context


@pytest.fixture
def help_of(monkeypatch):
    """Return a command's help on a terminal of so many columns."""

    def shown(words, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        return context_of(words).get_help()

    return shown


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_fits_a_terminal(words, help_of):
    """At 80 columns no line is longer, no command's text is cut, and no option's name is torn in two."""
    shown = help_of(words)
    assert not re.search(r"^  .*\.\.\.$", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"(?<![\w-])--?$|\w-$", shown, re.MULTILINE), shown
    wide = help_of(words, 200)
    assert set(re.findall(r"--[a-z-]+", shown)) == set(re.findall(r"--[a-z-]+", wide))


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_two_examples_that_parse(words, help_of):
    """The examples of each help stand on lines of their own, and are commands with options that there are."""
    examples = [line[2:] for line in help_of(words).partition("Examples:\n")[2].splitlines()]
    assert len(examples) >= 2
    for example in examples:
        for part in re.findall("hpclaunch ([^&>)]+)", example):
            context_of(shlex.split(part))


def test_options_stand_in_groups(help_of):
    """The many options of a job are found by what they are about; few options need no groups."""
    shown = help_of(("submit",))
    assert re.findall(r"^\S.*(?=:$)", shown, re.MULTILINE) == [
        "Resources", "Environment", "Launch", "Survive", "Money and checks", "Output", "Examples",
    ]  # fmt: skip
    groups = dict(zip(*[iter(re.split(r"^(\w.*):$", shown, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert "-N, --nodes N " in groups["Resources"]
    assert "--venv" in groups["Environment"]
    assert "--max-attempts" in groups["Survive"]
    assert "--wait" in groups["Output"]
    assert re.findall(r"^\S.*(?=:$)", help_of(("cancel",)), re.MULTILINE) == ["Options", "Examples"]
