"""`fjm2-bench pub`: publish messages."""

import asyncio
from typing import Any

import click

from fjm2.commands.support.common import run

from ..layers import load
from ..layers.base import Publisher, PubOptions
from ..workload.results import TimedOutError, print_result
from .options import (
    Rate,
    check_how_much,
    check_layer,
    how_much_options,
    json_option,
    layer_option,
    object_option,
    properties_option,
    size_option,
    timeout_option,
    uri_option,
)


@click.command()
@layer_option
@uri_option
@size_option(1024)
@how_much_options
@object_option
@click.option("--rate", type=Rate(), help="Bits per second, such as 100mbit; 0 for no limit. Overrides the URI's.")
@click.option(
    "--batch",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Messages in one write (norm), or in one send_many (jms).",
)
@properties_option
@click.option(
    "--receivers",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Receivers to wait for before sending, and for their confirmation after it.",
)
@timeout_option(120.0)
@json_option
def pub(layer: str, timeout_s: float, as_json: bool, **options: Any) -> None:
    """Publish numbered messages in a tight loop. End when all receivers have confirmed the last message.

    \b
    Example: fjm2-bench pub --uri 'fjm2://239.192.57.40:5740?interface=eth0&flow=min' --size 1024 --seconds 5 --rate 0
    """
    check_layer(layer)
    check_how_much(options["count"], options["seconds"])
    if options["batch"] > 1 and options["form"] == "data":
        raise click.UsageError("--batch is for streams: a DATA object is one message")
    run(_pub(load(layer).publisher(PubOptions(**options)), timeout_s, as_json))


async def _pub(publisher: Publisher, timeout_s: float, as_json: bool) -> int:
    try:
        async with asyncio.timeout(timeout_s):
            result = await publisher.publish()
    except TimeoutError:
        raise TimedOutError(f"{publisher.doing}: not done within {timeout_s:g} s") from None
    print_result(result, as_json)
    return 1 if result.not_acked else 0
