"""The `fjm2` command."""

import click

from fjm2 import __version__

from .common import open_standard_streams
from .doctor import doctor
from .norm_recv import recv
from .norm_send import send
from .pub import pub
from .reply import reply
from .request import request
from .sub import sub
from .tail import tail
from .top import top
from .topics import topics
from .trace import trace


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fjm2")
def main() -> None:
    """Brokerless messaging over NORM reliable multicast.

    \b
    Example: fjm2 sub greetings
             fjm2 pub greetings hello        # in another terminal
    """
    open_standard_streams()


for command in (pub, sub, request, reply, trace, doctor, top, topics, tail):
    main.add_command(command)


@main.group()
def norm() -> None:
    """Send and receive NORM objects and streams (RFC 5740), also with NRL's implementation."""


norm.add_command(send)
norm.add_command(recv)
