"""Options that commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fjm2.errors import ConfigError, FJM2Error
from fjm2.norm import Session
from fjm2.uri import BusConfig

from ..workload import MESSAGE_BYTES_MIN

_F = TypeVar("_F", bound=Callable[..., Any])


class Bus(click.ParamType[BusConfig]):
    """A bus URI."""

    name = "URI"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> BusConfig:
        if isinstance(value, BusConfig):
            return value
        try:
            return BusConfig.from_uri(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class TimedOutError(FJM2Error):
    """Something did not happen in time; says what."""


layer_option = click.option(
    "--layer", default="norm", show_default=True, type=click.Choice(["norm"]), help="The API to go through."
)
uri_option = click.option(
    "--uri",
    default="fjm2://",
    show_default="fjm2://239.192.57.40:5740",
    type=Bus(),
    help="The bus: group, port, ?interface=IF, and settings such as &rate=100mbit.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
object_option = click.option(
    "--object",
    "form",
    default="stream",
    show_default=True,
    type=click.Choice(["stream", "data"]),
    help="Messages in a stream, or each one a DATA object.",
)


def size_option(default: int) -> Callable[[_F], _F]:
    return click.option(
        "--size",
        default=default,
        show_default=True,
        type=click.IntRange(MESSAGE_BYTES_MIN, 1 << 28),
        help="Bytes of a message.",
    )


def timeout_option(default: float, text: str = "Give up after so many seconds.") -> Callable[[_F], _F]:
    return click.option(
        "--timeout",
        "timeout_s",
        default=default,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help=text,
    )


def how_much_options(function: _F) -> _F:
    """--count or --seconds."""
    function = click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Send for so long.")(
        function
    )
    return click.option("--count", type=click.IntRange(min=1), help="Send so many messages.")(function)


def check_how_much(count: int | None, seconds: float | None) -> None:
    """One of the two has to be given."""
    if (count is None) == (seconds is None):
        raise click.UsageError("give one of --count and --seconds")


def open_session(bus: BusConfig) -> Session:
    """A node of a bus, to send and to receive."""
    return Session(
        bus.group,
        bus.port,
        interface=bus.interface,
        sender=bus.sender,
        receiver=bus.receiver,
        ttl=bus.ttl,
        dscp=bus.dscp,
        loopback=bus.loopback,
    )
