"""The command completion."""

import click

from hpclaunch.cli.help import Command


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, /, shell: str) -> None:
    """Print the completion of commands, sites and jobs for SHELL.

    Examples:
      eval "$(hpclaunch completion bash)"
      hpclaunch completion fish >~/.config/fish/completions/hpclaunch.fish
    """
    from click.shell_completion import shell_complete

    shell_complete(ctx.find_root().command, {}, "hpclaunch", "_HPCLAUNCH_COMPLETE", f"{shell}_source")
