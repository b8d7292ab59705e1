"""`fjm2 top`: a bus at a glance."""

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

from .support.common import Number, run
from .support.live_view import Onlooker, duration_option, onlooking, topic_option, uri_option
from .support.screen import draw
from .support.streams import write

_ONCE_COLUMNS = 160
"""For a file or a pipe, which has no width."""
_LOOK_S = 0.1
"""So soon a terminal of another size is drawn anew."""


@click.command()
@uri_option
@topic_option
@click.option(
    "--interval",
    "interval_s",
    default=1.0,
    show_default=True,
    type=Number(0.1, 3600),
    metavar="SECONDS",
    help="Between two screens, or lines of JSON. Rates are over this time.",
)
@click.option("--once", is_flag=True, help="Listen for a while, show all there is, and end.")
@duration_option("With --once: for how long to listen. Rates are over this time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each screen, on one line.")
def top(uri: str, known: tuple[Topic, ...], interval_s: float, once: bool, duration_s: float, as_json: bool) -> None:
    """Show who is on a bus, what is sent, and what is lost.

    It listens and sends nothing: nobody waits for it, and nobody knows of it. What it knows grows as it listens:
    members announce themselves every 5 s, topics have names once something is published to them. q or Ctrl-C ends it.

    MISSED are datagrams that did not come here. CONFIRMS IN is how long a receiver takes to have everything it is
    asked about, losses repaired; the longest of late. AWAITED is for how long somebody has been waiting for that.

    \b
    Example: fjm2 top
             fjm2 top --topic prices.eu --interval 5
             fjm2 top --once --json | jq .slowest
    """
    is_screen = sys.stdout.isatty() and not Console().is_dumb_terminal
    if not (once or as_json or is_screen):
        raise click.UsageError("standard output is no terminal: expected --once or --json")
    run(_top(uri, known, interval_s, duration_s if once else None, as_json))


async def _top(uri: str, known: tuple[Topic, ...], interval_s: float, once_s: float | None, as_json: bool) -> int:
    async with onlooking(uri, known) as onlooker:
        if once_s is not None:
            await _show_once(onlooker, once_s, as_json)
        elif as_json:
            await _write_lines(onlooker, interval_s)
        else:
            await _show(onlooker, interval_s)
    return 0


async def _show_once(onlooker: Onlooker, duration_s: float, as_json: bool) -> None:
    report = await onlooker.hear(duration_s, as_json)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
        return
    console = Console(width=None if sys.stdout.isatty() else _ONCE_COLUMNS, highlight=False)
    console.print(draw(report, onlooker.place, console.width, is_down=onlooker.listening.is_down))


async def _write_lines(onlooker: Onlooker, interval_s: float) -> None:
    with contextlib.suppress(BrokenPipeError):
        while True:
            await asyncio.sleep(interval_s)
            await write(json.dumps(onlooker.report().as_dict()).encode() + b"\n")


class _Wish(Enum):
    """What somebody at the terminal asks for."""

    QUIT = "q"
    PAUSE = "Ctrl-Z"


async def _show(onlooker: Onlooker, interval_s: float) -> None:
    while await _show_until_asked(onlooker, interval_s) is _Wish.PAUSE:
        signal.raise_signal(signal.SIGSTOP)  # the shell has its terminal back until it says `fg`


async def _show_until_asked(onlooker: Onlooker, interval_s: float) -> _Wish:
    console = Console(highlight=False)
    loop = asyncio.get_running_loop()
    wish: asyncio.Future[_Wish] = loop.create_future()
    report, drawn_size = onlooker.report(), (0, 0)
    with _keys(wish), Live(console=console, screen=True, auto_refresh=False) as live:
        next_at = loop.time()
        while not wish.done():
            now, size = loop.time(), os.get_terminal_size(sys.stdout.fileno())
            if now >= next_at:
                report, next_at = onlooker.report(), now + interval_s
            elif size == drawn_size:
                await asyncio.wait([wish], timeout=min(next_at - now, _LOOK_S))
                continue
            # Set, as the console would believe the environment's COLUMNS and LINES, which are those of the beginning.
            console.size = ConsoleDimensions(*size)
            drawn_size = size
            screen = draw(report, onlooker.place, size.columns, size.lines, onlooker.listening.is_down)
            live.update(screen, refresh=True)
    return wish.result()


@contextlib.contextmanager
def _keys(wish: "asyncio.Future[_Wish]") -> Iterator[None]:
    """Takes `q` and Ctrl-Z for wishes, and lets keys have no other effect, as long as this lasts."""
    try:
        import termios
        import tty
    except ImportError:  # no such terminals: Ctrl-C it is
        yield
        return
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield
        return
    before, is_blocking = termios.tcgetattr(descriptor), os.get_blocking(descriptor)
    loop = asyncio.get_running_loop()

    def ask(for_what: _Wish) -> None:
        if not wish.done():
            wish.set_result(for_what)

    def take() -> None:
        keys = os.read(descriptor, 64)
        if not keys or b"q" in keys.lower():  # none: the terminal is gone
            ask(_Wish.QUIT)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, take)
    loop.add_signal_handler(signal.SIGTSTP, ask, _Wish.PAUSE)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTSTP)
        loop.remove_reader(descriptor)
        os.set_blocking(descriptor, is_blocking)  # the loop has made it so, for all who have this terminal
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
