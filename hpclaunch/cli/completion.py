"""The command completion."""

import click

from hpclaunch.cli.help import Command

# What click's own functions lack. zsh leaves --site=ga one word, of which only the end is completed; bash splits it.
_OWN = {
    "    compadd -U": '    compadd -U -i "$IPREFIX"',
    "    for type key descr": "    compset -P '--*='\n    for type key descr",
    '    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD': """\
    local word words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ $word == "=" || ${words[*]: -1} == *= ]]; then words[-1]+=$word; else words+=("$word"); fi
    done
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1))""",
}


@click.command("completion", cls=Command, epilog="completion bash >>~/.bashrc\ncompletion zsh >~/.zsh/_hpclaunch")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, /, shell: str) -> None:
    """Print the completion of commands, sites and jobs for SHELL."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind  # noqa: S101 - a choice of those that there are
    source = kind(ctx.find_root().command, {}, "hpclaunch", "_HPCLAUNCH_COMPLETE").source()
    for line, own in _OWN.items():
        source = source.replace(line, own)
    click.echo(source, nl=False)
