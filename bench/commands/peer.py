"""`fjm2-bench peer`: another system at the same task."""

import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from fjm2.base.interrupts import INTERRUPTED

from ..peers import RAW, SYSTEMS, load
from ..peers.base import PeerOptions, PeerTimeoutError
from ..workload.messages import PROPERTIES_MAX
from ..workload.results import print_result
from .options import check_how_much, how_much_options, object_option, size_option, timeout_option

_COUNT = 5000
"""Default number of round trips, as of `fjm2-bench ping`."""


@click.command()
@click.argument("system", type=click.Choice(SYSTEMS))
@click.argument("role", type=click.Choice(["pub", "sub", "ping", "echo"]))
@click.option(
    "--publisher", default="127.0.0.1", show_default=True, help="Address of pub or ping, where all but libnorm meet."
)
@click.option("--interface", default="lo", show_default=True, help="Interface for multicast, by name or address.")
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5740, show_default=True, type=click.IntRange(1, 65_534), help="First of two ports.")
@size_option(1024)
@how_much_options
@click.option(
    "--warm-up",
    default=500,
    show_default=True,
    type=click.IntRange(min=0),
    help="Round trips of ping that do not count.",
)
@object_option
@click.option(
    "--receivers", default=1, show_default=True, type=click.IntRange(0, 256), help="Subscribers that pub waits for."
)
@click.option("--rate", type=click.FloatRange(min=1000), help="Rate of libnorm in bits per second.")
@click.option(
    "--segment-size",
    default=8000,
    show_default=True,
    type=click.IntRange(64, 65_000),
    help="Segment size of libnorm. If it fits into a packet, Cyclone DDS and JGroups send small datagrams, too.",
)
@click.option(
    "--batch", default=1, show_default=True, type=click.IntRange(min=1), help="Messages in one write (libnorm)."
)
@click.option(
    "--properties",
    default=0,
    show_default=True,
    type=click.IntRange(0, PROPERTIES_MAX),
    help="Properties of each message (ActiveMQ).",
)
@click.option("--no-verify", is_flag=True, help="Do not check the content of messages.")
@timeout_option(60.0)
@click.option("--json", "as_json", is_flag=True, help="Has no effect: the result is always JSON.")
def peer(
    system: str,
    role: str,
    publisher: str,
    interface: str,
    group: str,
    port: int,
    size: int,
    count: int | None,
    seconds: float | None,
    warm_up: int,
    form: str,
    receivers: int,
    rate: float | None,
    segment_size: int,
    batch: int,
    properties: int,
    no_verify: bool,
    timeout_s: float,
    as_json: bool,  # noqa: ARG001
) -> None:
    """Run another system's publisher, subscriber, ping or echo, with the same lines of JSON as FJM2's.

    A publisher starts the broker that its system needs, and ends it. Systems with udp in their names send bare
    datagrams: losses are no failure.

    \b
    Example: fjm2-bench peer zenoh sub --size 1024 & fjm2-bench peer zenoh pub --size 1024 --seconds 5
    """
    if role == "pub":
        check_how_much(count, seconds)
    elif role == "ping":
        count = count or _COUNT
    adapter = load(system)
    lack = adapter.missing()
    if lack is not None:
        raise click.ClickException(f"{system}: {lack}")
    options = PeerOptions(
        publisher=publisher,
        interface=interface,
        group=group,
        port=port,
        size=size,
        count=count,
        seconds=seconds,
        warm_up=warm_up,
        form=form,
        receivers=receivers,
        rate_bps=rate,
        segment_bytes=segment_size,
        batch=batch,
        properties=properties,
        is_verified=not no_verify,
        timeout_s=timeout_s,
    )
    signal.signal(signal.SIGTERM, _terminate)
    try:
        result = getattr(adapter, role)(options)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (PeerTimeoutError, OSError) as error:
        raise click.ClickException(f"{system}: {error}") from error
    print_result(result, as_json=True)
    is_well = role != "sub" or (result.ended if system in RAW else result.is_lossless)
    sys.exit(0 if is_well else 1)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Exit with the code for interruption.

    This does not raise KeyboardInterrupt: within an `exec` of a string, as when a dataclass is made during an import,
    it would end the process by SIGINT although it is caught.
    """
    sys.exit(INTERRUPTED)
