"""The `fjm2` command."""

import click

from fjm2 import __version__

from .support.common import open_standard_streams
from .support.lazy_group import LazyCommands

_ENVIRONMENT = """
\b
Environment variables of these commands, and of any program that uses FJM2:
  FJM2_URI              bus to use if none is named
  FJM2_NO_GSO=1         send and receive datagram by datagram, even if the kernel supports trains
  FJM2_METRICS          address to serve metrics for Prometheus at, such as 127.0.0.1:9464
  FJM2_TRACE_DIR        directory to write traces to
  FJM2_TRACE_INTERVAL   seconds between samples; default 0.1
  FJM2_TRACE_BYTES_MAX  bytes of traces to keep for a node; default 1073741824
  FJM2_TRACE_LABELS     labels of each line, as a JSON object
"""

_COMMANDS = ("pub", "sub", "request", "reply", "keep", "trace", "doctor", "top", "topics", "tail", "completion")
_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(
    commands=LazyCommands({name: f"{__name__}.{name}" for name in _COMMANDS}),
    context_settings=_SETTINGS,
    epilog=_ENVIRONMENT,
)
@click.version_option(__version__, prog_name="fjm2")
def main() -> None:
    """Brokerless messaging over NORM reliable multicast.

    \b
    Example: fjm2 sub greetings
             fjm2 pub greetings hello        # in another terminal
    """
    open_standard_streams()


@main.group(commands=LazyCommands({"send": "fjm2.commands.norm_send", "recv": "fjm2.commands.norm_recv"}))
def norm() -> None:
    """Send and receive NORM objects and streams (RFC 5740), also with NRL's implementation.

    \b
    Example: fjm2 norm recv --group 239.192.57.40 --port 5741 --out inbox --count 1
             fjm2 norm send --group 239.192.57.40 --port 5741 --file report.pdf      # in another terminal
    """
