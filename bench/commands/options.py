"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fjm2.base.quantities import duration_text
from fjm2.commands.support.bus_options import BusUri
from fjm2.commands.support.common import Duration
from fjm2.errors import ConfigError

from ..layers import LAYERS
from ..rate import rate_bps
from ..workload.messages import MESSAGE_BYTES_MIN, PROPERTIES_MAX

_F = TypeVar("_F", bound=Callable[..., Any])


class Rate(click.ParamType[str]):
    """A bit rate, which is checked and passed on as text."""

    name = "RATE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            rate_bps(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return str(value)


_LAYER_OF = {"form": "norm", "properties": "jms", "selector": "jms", "api": "jms"}
"""Layer of each option that only one layer has."""


def check_layer(layer: str) -> None:
    """Raise UsageError if an option was given that is not for this layer."""
    context = click.get_current_context()
    for option in context.command.params:
        owner = _LAYER_OF.get(option.name or "", layer)
        if owner != layer and context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option.opts[0]} is for --layer {owner}")


layer_option = click.option(
    "--layer", default="norm", show_default=True, type=click.Choice(LAYERS), help="The API to go through."
)
uri_option = click.option(
    "--uri",
    envvar="FJM2_URI",
    show_envvar=True,
    default="fjm2://",
    show_default="fjm2://239.192.57.40:5740",
    type=BusUri(),
    help="URI of the bus: group, port, ?interface=IF, and settings such as &rate=100mbit.",
)
properties_option = click.option(
    "--properties",
    default=0,
    show_default=True,
    type=click.IntRange(0, PROPERTIES_MAX),
    help="Properties of each message (jms; the same at both ends): p0 is the last digit of its number, p1 the name of "
    "the digit, p2 the digit, and so on.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
object_option = click.option(
    "--object",
    "form",
    default="stream",
    show_default=True,
    type=click.Choice(["stream", "data"]),
    help="Send messages in a stream, or each as a DATA object (norm).",
)


def size_option(default: int) -> Callable[[_F], _F]:
    return click.option(
        "--size",
        default=default,
        show_default=True,
        type=click.IntRange(MESSAGE_BYTES_MIN, 1 << 28),
        help="Bytes of a message.",
    )


def timeout_option(default: float, text: str = "Give up after this time.") -> Callable[[_F], _F]:
    return click.option(
        "--timeout",
        "timeout_s",
        default=duration_text(default),
        show_default=True,
        type=Duration(is_low_open=True),
        help=text,
    )


def how_much_options(function: _F) -> _F:
    """Add the options --count and --seconds to a command."""
    function = click.option("--seconds", type=Duration(is_low_open=True), help="Send for this time.")(function)
    return click.option("--count", type=click.IntRange(min=1), help="Send this many messages.")(function)


def check_how_much(count: int | None, seconds: float | None) -> None:
    """Raise UsageError unless exactly one of `count` and `seconds` is given."""
    if (count is None) == (seconds is None):
        raise click.UsageError("give one of --count and --seconds")
