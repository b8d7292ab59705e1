"""`fjm2-bench ping` and `fjm2-bench echo`: round-trip times."""

import asyncio

import click

from fjm2.commands.support.common import run

from ..layers import load
from ..layers.base import Layer
from ..workload.results import EchoResult, TimedOutError, ping_result, print_ready, print_result
from .options import json_option, layer_option, size_option, timeout_option, uri_option

count_option = click.option(
    "--count", default=5000, show_default=True, type=click.IntRange(min=1), help="Round trips to measure."
)
warm_up_option = click.option(
    "--warm-up",
    default=500,
    show_default=True,
    type=click.IntRange(min=0),
    help="Round trips before the measured ones.",
)


@click.command()
@layer_option
@uri_option
@size_option(64)
@count_option
@warm_up_option
@timeout_option(60.0)
@json_option
def ping(layer: str, uri: str, size: int, count: int, warm_up: int, timeout_s: float, as_json: bool) -> None:
    """Measure round trips to `fjm2-bench echo`, one message at a time: p50, p99 and p99.9.

    \b
    Example: fjm2-bench ping --uri 'fjm2://239.192.57.40:5740?interface=eth0' --size 64 --count 10000
    """
    run(_ping(load(layer), uri, size, count, warm_up, timeout_s, as_json))


@click.command()
@layer_option
@uri_option
@timeout_option(60.0, "End after this time in any case.")
@json_option
def echo(layer: str, uri: str, timeout_s: float, as_json: bool) -> None:
    """Send back what `fjm2-bench ping` sends until it ends.

    \b
    Example: fjm2-bench echo --uri 'fjm2://239.192.57.40:5740?interface=eth0'
    """
    run(_echo(load(layer), uri, timeout_s, as_json))


async def _ping(layer: Layer, uri: str, size: int, count: int, warm_up: int, timeout_s: float, as_json: bool) -> int:
    pinger = layer.pinger(uri, size)
    try:
        async with asyncio.timeout(timeout_s):
            times = await pinger.measure(warm_up + count)
    except TimeoutError:
        raise TimedOutError(f"{pinger.doing}: not done within {timeout_s:g} s") from None
    print_result(ping_result(layer.system, size, times[warm_up:]), as_json)
    return 0


async def _echo(layer: Layer, uri: str, timeout_s: float, as_json: bool) -> int:
    echoer = layer.echoer(uri)
    await echoer.serve(lambda: print_ready(as_json), timeout_s)
    print_result(EchoResult(system=layer.system, messages=echoer.messages), as_json)
    return 0 if echoer.is_ended else 1
