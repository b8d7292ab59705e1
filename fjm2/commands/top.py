"""`fjm2 top`: shows the state of a bus."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from enum import Enum

import click
from rich.console import Console, ConsoleDimensions
from rich.live import Live

from fjm2.jms import Topic

from .support.common import Duration, run
from .support.live_view import Onlooker, duration_option, has_members, open_onlooker, topic_option, uri_option
from .support.screen import draw
from .support.streams import write

_ONCE_COLUMNS = 160
"""Width of output to a file or a pipe, which have no width of their own."""
_RESIZE_CHECK_S = 0.1
"""Seconds between two checks of the terminal's size: soon enough to look immediate."""


@click.command()
@uri_option
@topic_option
@click.option(
    "--interval",
    "interval_s",
    default="1s",
    show_default=True,
    type=Duration(0.1, 3600),
    help="Time between two screens, or lines of JSON. Rates refer to it.",
)
@click.option("--once", is_flag=True, help="Listen for a while, print everything, and end.")
@duration_option("With --once: time to listen. Rates refer to it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per screen, on one line.")
def top(uri: str, known: tuple[Topic, ...], interval_s: float, once: bool, duration_s: float, as_json: bool) -> None:
    """Show who is on a bus, what is sent, and what is lost.

    It listens and sends nothing: no publisher waits for it, and no member knows of it. It learns as it listens:
    members announce themselves every 5 s, and topics get names when something is published to them. Press q to end.

    MISSED counts datagrams that did not arrive here. CONFIRMS IN is the longest time that a receiver recently took to
    confirm that it has everything, repairs included. AWAITED is how long a sender has been waiting for a confirmation,
    with `full` before it if the receiver's application takes no messages at the moment.

    With --once, the exit code is 1 if no member was heard.

    \b
    Example: fjm2 top
             fjm2 top --topic prices.eu --interval 5
             fjm2 top --once --json | jq .slowest
    """
    is_screen = sys.stdout.isatty() and not Console().is_dumb_terminal
    if not (once or as_json or is_screen):
        raise click.UsageError("standard output is not a terminal: expected --once or --json")
    run(_top(uri, known, interval_s, duration_s if once else None, as_json))


async def _top(uri: str, known: tuple[Topic, ...], interval_s: float, once_s: float | None, as_json: bool) -> int:
    async with open_onlooker(uri, known) as onlooker:
        if once_s is not None:
            return await _show_once(onlooker, once_s, as_json)
        if as_json:
            await _write_lines(onlooker, interval_s)
        else:
            await _show(onlooker, interval_s)
    return 0


async def _show_once(onlooker: Onlooker, duration_s: float, as_json: bool) -> int:
    report = await onlooker.listen(duration_s, as_json)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        console = Console(width=None if sys.stdout.isatty() else _ONCE_COLUMNS, highlight=False)
        console.print(draw(report, onlooker.place, console.width, is_down=onlooker.listening.is_down))
    return 0 if has_members(report) else 1


async def _write_lines(onlooker: Onlooker, interval_s: float) -> None:
    with contextlib.suppress(BrokenPipeError):
        while True:
            await asyncio.sleep(interval_s)
            await write(json.dumps(onlooker.report().as_dict()).encode() + b"\n")


class _Request(Enum):
    """A request of the user, with the key that makes it."""

    QUIT = "q"
    PAUSE = "Ctrl-Z"


async def _show(onlooker: Onlooker, interval_s: float) -> None:
    while await _show_until_asked(onlooker, interval_s) is _Request.PAUSE:
        signal.raise_signal(signal.SIGSTOP)  # the shell has the terminal until `fg`


async def _show_until_asked(onlooker: Onlooker, interval_s: float) -> _Request:
    console = Console(highlight=False)
    loop = asyncio.get_running_loop()
    request: asyncio.Future[_Request] = loop.create_future()
    report, drawn_size = onlooker.report(), (0, 0)
    with _keys(request), Live(console=console, screen=True, auto_refresh=False) as live:
        next_at = loop.time()
        while not request.done():
            now, size = loop.time(), os.get_terminal_size(sys.stdout.fileno())
            if now >= next_at:
                report, next_at = onlooker.report(), now + interval_s
            elif size == drawn_size:
                await asyncio.wait([request], timeout=min(next_at - now, _RESIZE_CHECK_S))
                continue
            # Set explicitly, since the console would use COLUMNS and LINES of the environment, which do not change.
            console.size = ConsoleDimensions(*size)
            drawn_size = size
            screen = draw(report, onlooker.place, size.columns, size.lines, onlooker.listening.is_down)
            live.update(screen, refresh=True)
    return request.result()


@contextlib.contextmanager
def _keys(request: "asyncio.Future[_Request]") -> Iterator[None]:
    """Set `request` when `q` or Ctrl-Z is pressed in the body of a `with` statement. Other keys have no effect."""
    try:
        import termios
        import tty
    except ImportError:  # there are no such terminals here: only Ctrl-C works
        yield
        return
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield
        return
    before, is_blocking = termios.tcgetattr(descriptor), os.get_blocking(descriptor)
    loop = asyncio.get_running_loop()

    def ask(for_what: _Request) -> None:
        if not request.done():
            request.set_result(for_what)

    def take() -> None:
        keys = os.read(descriptor, 64)
        if not keys or b"q" in keys.lower():  # no keys: the terminal is gone
            ask(_Request.QUIT)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, take)
    loop.add_signal_handler(signal.SIGTSTP, ask, _Request.PAUSE)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTSTP)
        loop.remove_reader(descriptor)
        os.set_blocking(descriptor, is_blocking)  # the loop has changed it, for all processes on this terminal
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
