"""Parts of the commands that listen to a bus without sending: options, listening, and formats of numbers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

import click

from fjm2.base.quantities import duration_text
from fjm2.bus.config import BusConfig
from fjm2.bus.presence import INTERVAL_S
from fjm2.jms import Topic
from fjm2.watch import BusReport, BusWatch, Listening, known_as
from fjm2.watch.bus import OnFrame

from .bus_link import say
from .bus_options import BusUri, TopicName
from .common import Duration, is_quiet

_F = TypeVar("_F", bound=Callable[..., Any])
DURATION_S: Final = 1.2 * INTERVAL_S + 1
"""Default time to listen. Up to a few hundred members have announced themselves by then."""


def uri_option(function: _F) -> _F:
    return click.option(
        "--uri",
        type=BusUri(),
        envvar="FJM2_URI",
        show_envvar=True,
        default="fjm2://",
        show_default="fjm2://239.192.57.40:5740",
        help="URI of the bus, as its members use it.",
    )(function)


def topic_option(function: _F) -> _F:
    return click.option(
        "--topic",
        "known",
        type=TopicName(),
        multiple=True,
        metavar="NAME",
        help="Name that a topic may have (repeatable). Names are only heard when something is published.",
    )(function)


def duration_option(text: str) -> Callable[[_F], _F]:
    return click.option(
        "--duration",
        "duration_s",
        type=Duration(0.1, 86_400),
        default=duration_text(DURATION_S),
        show_default=True,
        help=text,
    )


def has_members(report: BusReport) -> bool:
    """Return True if anybody was heard on the bus."""
    return bool(report.connections or report.senders)


@dataclass(frozen=True, slots=True)
class Onlooker:
    """A program that listens to a bus and sends nothing."""

    config: BusConfig
    watch: BusWatch
    listening: Listening

    def report(self) -> BusReport:
        return self.watch.report(monotonic())

    @property
    def place(self) -> str:
        """Group, port and interface that the program listens on."""
        host = f"[{self.config.group}]" if ":" in self.config.group else self.config.group
        return f"{host}:{self.config.port} on {self.listening.interface}"

    async def listen(self, duration_s: float, as_json: bool) -> BusReport:
        """Listen, and return the report. Before that, print the duration unless output is quiet."""
        if not is_quiet(as_json):
            say(f"listening to {self.place} for {duration_s:g} s")
        await asyncio.sleep(duration_s)
        return self.report()


@contextlib.asynccontextmanager
async def open_onlooker(
    uri: str, known: tuple[Topic, ...] = (), on_frame: OnFrame | None = None
) -> AsyncIterator[Onlooker]:
    """Listen to a bus in the body of a `with` statement."""
    logging.getLogger("fjm2.norm").setLevel(logging.ERROR)  # its warnings would disturb the screen
    config = BusConfig.from_uri(uri)
    watch = BusWatch(known_as(one.name for one in known), now=monotonic(), on_frame=on_frame)
    async with Listening(config, watch) as listening:
        yield Onlooker(config, watch, listening)


def quantity(number: float) -> str:
    """Return a number as text with about three digits and a unit prefix, such as 1.5k."""
    for prefix in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.0f}{prefix}" if not prefix or number >= 99.95 else f"{number:.1f}{prefix}"
        number /= 1000
    return f"{number:.1f}G"


def rate(number: float) -> str:
    """Return a rate as text. A small rate keeps a decimal, so that it differs from zero."""
    return f"{number:.1f}" if 0 < number < 9.95 else quantity(number)


def span(seconds: float | None) -> str:
    """Return a duration as a short text, such as 1.5s, or "-" for None."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.1f}ms" if seconds < 0.0995 else f"{seconds * 1e3:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes = int(seconds) // 60
    return f"{minutes}m{int(seconds) % 60:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"
