"""Parts that all commands share: session options, the event loop, and exit codes."""

import asyncio
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from fjm2.base.errors import ConfigError, FJM2Error
from fjm2.base.event_loop import uvloop_class
from fjm2.base.interrupts import INTERRUPTED, end_at_interrupts
from fjm2.base.quantities import duration_text, seconds_of

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A number within bounds. NaN is refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class Duration(click.ParamType[float]):
    """A duration within bounds, as seconds: `500ms`, `5s`, `2min`, `1h`, or a bare number, which is in seconds."""

    name = "DURATION"

    def __init__(self, low_s: float = 0.0, high_s: float = math.inf, *, is_low_open: bool = False) -> None:
        self._low_s, self._high_s, self._is_low_open = low_s, high_s, is_low_open

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = seconds_of(str(value))
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not self._low_s <= seconds <= self._high_s or (self._is_low_open and seconds == self._low_s):
            self.fail(f"{value}: expected {self._bounds()}", param, ctx)
        return seconds

    def _bounds(self) -> str:
        low = duration_text(self._low_s)
        if math.isinf(self._high_s):
            return f"more than {low}" if self._is_low_open else f"{low} or more"
        return f"{low} to {duration_text(self._high_s)}"


def open_standard_streams() -> None:
    """Open closed standard streams on /dev/null. Otherwise a socket would get their descriptor, and their data."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115


def session_options(function: _Function) -> _Function:
    """Add the options for the address and the node id of a NORM session."""
    options = [
        click.option("--group", required=True, help="Multicast group (IPv4 or IPv6), or the address of a single peer."),
        click.option("--port", required=True, type=click.IntRange(1, 65_535), help="UDP port of the session."),
        click.option("--interface", help="Name or address of the network interface.  [default: by the route]"),
        click.option("--node-id", type=click.IntRange(1, 0xFFFFFFFE), help="Our NORM node id.  [default: random]"),
        click.option("--ttl", default=1, show_default=True, type=click.IntRange(0, 255), help="Multicast hops."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def check_peer(group: str, port: int, interface: str | None) -> None:
    """Raise UsageError if the group is no address, or the loopback is named as the interface to a peer on another
    host."""
    from fjm2.norm.net.interfaces import find_interface
    from fjm2.norm.net.udp_opening import UdpConfig, check_is_local

    try:
        config = UdpConfig(group=group, port=port, interface=interface)
    except ConfigError as error:
        raise click.BadParameter(f"{group!r}: expected {error.expected}", param_hint="'--group'") from None
    if interface is None:
        return
    try:
        found = find_interface(interface, config.family, group)
    except ConfigError:
        return  # the session raises it, too
    try:
        check_is_local(config, found)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


_DOCTOR = "a firewall rule of this host, most likely: run `fjm2 doctor` as root, which names it"


def cut_off_text(is_down: bool, refusal: str | None) -> str | None:
    """Return why what a command sent last did not leave this host, or None if it did."""
    if refusal is not None:
        return f"not sent: the kernel refuses to send it: {refusal}; {_DOCTOR}"
    return "not sent: the network interface is down; check cable and address, or run `fjm2 doctor`" if is_down else None


def refused_text(interface: str, reason: str) -> str:
    """Return the warning of a command whose sends the kernel refuses."""
    return f"warning: the kernel refuses what this host sends over {interface}: {reason}; {_DOCTOR}"


def run(main: Coroutine[Any, Any, int]) -> None:
    """Run a command's coroutine, on uvloop if it is installed, and exit with its result.

    Errors are printed in one line. Ctrl-C and SIGTERM cancel the coroutine, which then cleans up.
    """
    cancellable = _cancellable(main)
    # KeyboardInterrupt while asyncio makes its first task would be raised where nobody takes it.
    end_at_interrupts()
    try:
        with asyncio.Runner(loop_factory=uvloop_class()) as runner:
            code = runner.run(cancellable)
        end_at_interrupts()
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise click.ClickException(f"{where}{error.strerror or error}") from error
    except FJM2Error as error:
        raise click.ClickException(str(error)) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        end_at_interrupts()
        code = INTERRUPTED
    sys.exit(code)


async def _cancellable(main: Coroutine[Any, Any, int]) -> int:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
    except NotImplementedError:  # Windows
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return await task
    finally:
        # The loop would raise KeyboardInterrupt in one of the tasks that still end, where nobody takes it.
        end_at_interrupts()


def is_quiet(as_json: bool) -> bool:
    """Return True if progress bars must not be shown: output is JSON, or standard error is not a terminal."""
    return as_json or not sys.stderr.isatty()
