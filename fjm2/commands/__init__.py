"""The `fjm2` command."""

import click

from fjm2 import __version__

from .common import open_standard_streams
from .norm_recv import recv
from .norm_send import send
from .pub import pub
from .reply import reply
from .request import request
from .sub import sub


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fjm2")
def main() -> None:
    """Brokerless messaging over NORM reliable multicast.

    \b
    Example: fjm2 sub greetings
             fjm2 pub greetings hello        # in another terminal
    """
    open_standard_streams()


for command in (pub, sub, request, reply):
    main.add_command(command)


@main.group()
def norm() -> None:
    """Send and receive NORM objects and streams (RFC 5740), also with NRL's implementation."""


norm.add_command(send)
norm.add_command(recv)
