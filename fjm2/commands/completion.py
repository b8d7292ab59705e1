"""`fjm2 completion`: prints shell scripts that complete commands and options."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_PROGRAMS = ("fjm2", "fjm2d", "fjm2admin", "fjm2-bench")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.argument("programs", metavar="[PROGRAM]...", nargs=-1, type=click.Choice(_PROGRAMS))
def completion(shell: str, programs: tuple[str, ...]) -> None:
    """Print a script that makes SHELL complete commands and options of each PROGRAM.

    SHELL is bash (4.4 or later), zsh or fish. PROGRAM is fjm2, fjm2d, fjm2admin or fjm2-bench. Without
    PROGRAM, the script is for all four.

    \b
    Example: eval "$(fjm2 completion bash)"           # in ~/.bashrc
             eval "$(fjm2 completion zsh)"            # in ~/.zshrc, behind compinit
             fjm2 completion fish > ~/.config/fish/conf.d/fjm2.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    for program in programs or _PROGRAMS:
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(root, {}, program, variable).source())
