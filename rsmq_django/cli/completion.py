"""`rsmqctl completion`: the shell completion of commands, options and queue names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .options import RsmqctlCommand


@click.command(cls=RsmqctlCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  rsmqctl completion bash > ~/.local/share/bash-completion/completions/rsmqctl
    zsh:   rsmqctl completion zsh > a file named _rsmqctl in your $fpath
    fish:  rsmqctl completion fish > ~/.config/fish/completions/rsmqctl.fish
    """
    make = get_completion_class(shell)
    assert make is not None
    root = context.find_root()
    click.echo(make(root.command, {}, "rsmqctl", "_RSMQCTL_COMPLETE").source())
