"""`plait completion`: what a shell needs to complete our commands and options."""

import click
from click.shell_completion import get_completion_class

from plait.scripts.options import examples


@click.command(
    epilog=examples(
        'eval "$(plait completion bash)"                                  in ~/.bashrc',
        'eval "$(plait completion zsh)"                                   in ~/.zshrc',
        "plait completion fish > ~/.config/fish/completions/plait.fish    once",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL, to be put where that shell reads it."""
    completion = get_completion_class(shell)
    assert completion is not None, "click knows every shell that is a choice here"
    click.echo(completion(ctx.find_root().command, {}, "plait", "_PLAIT_COMPLETE").source())
