"""The command completion."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, /, shell: str) -> None:
    """Print the completion of commands, sites and jobs for SHELL.

    Example: eval "$(hpclaunch completion bash)"
    """
    from click.shell_completion import shell_complete

    shell_complete(ctx.find_root().command, {}, "hpclaunch", "_HPCLAUNCH_COMPLETE", f"{shell}_source")
