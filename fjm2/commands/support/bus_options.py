"""Options of the commands that use JMS: the bus, headers and properties of messages, and the output."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from fjm2.base.errors import ConfigError, FJM2Error
from fjm2.base.quantities import duration_text
from fjm2.bus.config import DEFAULT_GROUP, DEFAULT_PORT, BusConfig, check_is_group
from fjm2.jms import (
    Byte,
    Double,
    Float,
    Int,
    InvalidDestinationError,
    InvalidSelectorError,
    Long,
    Message,
    Selector,
    Short,
    Topic,
    TopicPattern,
)
from fjm2.jms.consumer import topic_or_pattern

from .common import Duration

_F = TypeVar("_F", bound=Callable[..., Any])
Property = tuple[str, Any]


class BusUri(click.ParamType[str]):
    """A bus URI. It is checked but not changed: `fjm2.jms` has defaults for settings that it does not name."""

    name = "URI"

    def __init__(self, *, may_be_peer: bool = False) -> None:
        """Refuse the address of one host, unless it `may_be_peer`."""
        self._may_be_peer = may_be_peer

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            config = BusConfig.from_uri(str(value))
            if not self._may_be_peer:
                check_is_group(config)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class ClientId(click.ParamType[str]):
    """Name of a client, which is not empty."""

    name = "TEXT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value):
            self.fail("expected a name that is not empty", param, ctx)
        return str(value)


class TopicName(click.ParamType[Topic]):
    """A topic, given by its name."""

    name = "TOPIC"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Topic:
        try:
            topic = to_topic(value)
        except InvalidDestinationError as error:
            self.fail(str(error), param, ctx)
        if isinstance(topic, TopicPattern):
            self.fail(f"{str(value)!r} is a pattern: expected one topic", param, ctx)
        return topic


class TopicNames(click.ParamType[Topic | TopicPattern]):
    """A topic, or a pattern of topics if the name has wildcards."""

    name = "TOPIC"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Topic | TopicPattern:
        try:
            return to_topic(value)
        except InvalidDestinationError as error:
            self.fail(str(error), param, ctx)


def to_topic(value: object) -> Topic | TopicPattern:
    """Return the topic of a name or, if it has wildcards, the pattern."""
    return value if isinstance(value, Topic | TopicPattern) else topic_or_pattern(str(value))


class SelectorText(click.ParamType[str]):
    """A valid selector."""

    name = "SELECTOR"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return Selector(str(value)).text
        except InvalidSelectorError as error:
            self.fail(f"{value!r}: {error.reason} at position {error.position}", param, ctx)


_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_BROKEN = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TRUTHS = {"true": True, "false": False}


def _boolean(text: str) -> bool:
    if text not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text]


_TYPES: dict[str, tuple[Callable[[str], Any], str]] = {
    "boolean": (_boolean, "true or false"),
    "byte": (lambda text: Byte(int(text)), "-128 to 127"),
    "short": (lambda text: Short(int(text)), "-32768 to 32767"),
    "int": (lambda text: Int(int(text)), "a whole number of 32 bits"),
    "long": (lambda text: Long(int(text)), "a whole number of 64 bits"),
    "float": (lambda text: Float(float(text)), "a number"),
    "double": (lambda text: Double(float(text)), "a number"),
    "string": (str, "a text"),
}


def inferred(text: str) -> bool | int | float | str:
    """Return the boolean, number or text that `text` most likely stands for. Digits with leading zeros are a text."""
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _WHOLE.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    if _BROKEN.fullmatch(text) and not text.lstrip("-").isdigit():
        return float(text)
    return text


class PropertyText(click.ParamType[Property]):
    """A message property, given as NAME=VALUE or NAME:TYPE=VALUE."""

    name = "NAME[:TYPE]=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Property:
        if isinstance(value, tuple):
            return value
        head, equals, text = str(value).partition("=")
        name, colon, kind = head.partition(":")
        if not equals:
            self.fail(f"{value!r}: expected NAME=VALUE or NAME:TYPE=VALUE", param, ctx)
        if colon and kind not in _TYPES:
            self.fail(f"{value!r}: unknown type {kind!r}, expected one of {', '.join(_TYPES)}", param, ctx)
        try:
            made = _TYPES[kind][0](text) if colon else inferred(text)
        except (ValueError, FJM2Error):
            self.fail(f"{value!r}: {text!r} is not a valid {kind}, expected {_TYPES[kind][1]}", param, ctx)
        try:
            Message().set_object_property(name, made)
        except (ValueError, FJM2Error) as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        return name, made


def _apply(function: _F, options: list[Callable[[_F], _F]]) -> _F:
    for option in reversed(options):
        function = option(function)
    return function


def bus_options(function: _F) -> _F:
    """Add the options for the bus and the client id."""
    return _apply(
        function,
        [
            click.option(
                "--uri",
                type=BusUri(),
                envvar="FJM2_URI",
                show_envvar=True,
                default="fjm2://",
                show_default=f"fjm2://{DEFAULT_GROUP}:{DEFAULT_PORT}",
                help="URI of the bus: fjm2://GROUP:PORT?interface=IF, and settings such as &rate=100mbit.",
            ),
            click.option("--client-id", type=ClientId(), help="Name of this client on the bus.  [default: none]"),
        ],
    )


def message_options(function: _F) -> _F:
    """Add the options for messages to send."""
    return _apply(
        function,
        [
            click.option(
                "-p",
                "--property",
                "properties",
                type=PropertyText(),
                multiple=True,
                callback=_once_each,
                help="Set a property (repeatable). Without TYPE, 5 is an int or long, 0.5 a double, true a boolean, "
                f"everything else a string. TYPE: {', '.join(_TYPES)}.",
            ),
            click.option("--type", "jms_type", metavar="TEXT", help="JMSType."),
            click.option("--correlation-id", help="JMSCorrelationID."),
            click.option(
                "--priority",
                default=4,
                show_default=True,
                type=click.IntRange(0, 9),
                help="5 and 6 overtake 0 to 4; 7 to 9 overtake all others.",
            ),
            click.option(
                "--time-to-live",
                "time_to_live_s",
                type=Duration(0.001, 1e9),
                help="Do not deliver it when it is older.  [default: for ever]",
            ),
            click.option(
                "--non-persistent",
                is_flag=True,
                help="Do not wait for confirmation; losses are still repaired.",
            ),
            click.option("--bytes", "as_bytes", is_flag=True, help="Send BytesMessages instead of TextMessages."),
        ],
    )


def _once_each(_: click.Context, __: click.Parameter, value: tuple[Property, ...]) -> dict[str, Any]:
    properties = dict(value)
    if len(properties) < len(value):
        twice = next(name for at, (name, _) in enumerate(value) if name in dict(value[:at]))
        raise click.BadParameter(f"{twice}: given twice, expected once")
    return properties


def output_options(function: _F) -> _F:
    """Add the options for printing messages."""
    return _apply(
        function,
        [
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message, on one line."),
            click.option(
                "-v", "--verbose", "--headers", "with_headers", is_flag=True, help="Print headers and properties, too."
            ),
            click.option("--no-newline", is_flag=True, help="Print bodies without separators."),
        ],
    )


def timeout_option(text: str, default: float | None = None) -> Callable[[_F], _F]:
    return click.option(
        "--timeout",
        "timeout_s",
        type=Duration(is_low_open=True),
        default=None if default is None else duration_text(default),
        show_default=default is not None,
        help=text,
    )
