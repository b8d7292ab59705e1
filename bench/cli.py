"""The `fjm2-bench` command."""

import click

from fjm2 import __version__
from fjm2.commands.support.lazy_group import LazyCommands

_COMMANDS = {
    "run": "fjm2bench.commands.run",
    "compare": "fjm2bench.commands.compare",
    "durable": "fjm2bench.commands.durable",
    "pub": "fjm2bench.commands.pub",
    "sub": "fjm2bench.commands.sub",
    "ping": "fjm2bench.commands.ping",
    "echo": "fjm2bench.commands.ping",
    "peer": "fjm2bench.commands.peer",
    "micro": "fjm2bench.commands.micro",
    "scale": "fjm2bench.commands.scale",
    "traces": "fjm2bench.traces.cli",
    "wan": "fjm2bench.commands.wan",
}


@click.group(commands=LazyCommands(_COMMANDS), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fjm2-bench")
def main() -> None:
    """Measure FJM2 beside other systems.

    \b
    Example: fjm2-bench micro                        # the cost of inner functions
             fjm2-bench compare --quick              # beside other systems, as root
             fjm2-bench run --quick --to traces      # a plan of experiments, as root
    """
