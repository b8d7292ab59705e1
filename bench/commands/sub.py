"""`fjm2-bench sub`: receive and check messages."""

from typing import Any

import click

from fjm2.commands.support.bus_options import SelectorText
from fjm2.commands.support.common import run

from ..layers import APIS, load
from ..layers.base import SubOptions, Subscriber
from ..workload.results import print_ready, print_result
from .options import check_layer, json_option, layer_option, properties_option, size_option, timeout_option, uri_option


@click.command()
@layer_option
@uri_option
@size_option(1024)
@click.option(
    "--count", type=click.IntRange(min=1), help="Number of messages to wait for.  [default: all that are sent]"
)
@properties_option
@click.option(
    "--selector", type=SelectorText(), help="Selector of messages, by p0, p1 and so on (jms): see --properties."
)
@click.option(
    "--api", default="listener", show_default=True, type=click.Choice(APIS), help="How to receive messages (jms)."
)
@timeout_option(60.0)
@click.option("--no-verify", is_flag=True, help="Do not check the content of messages: measure only the transport.")
@json_option
def sub(layer: str, no_verify: bool, as_json: bool, **options: Any) -> None:
    """Receive what `fjm2-bench pub` sends, check each message, and end when the publisher ends.

    The exit code is 0 if the publisher's end was seen and every message arrived once and unaltered.

    \b
    Example: fjm2-bench sub --uri 'fjm2://239.192.57.40:5740?interface=eth0' --size 1024 --timeout 60
    """
    check_layer(layer)
    run(_sub(load(layer).subscriber(SubOptions(is_verified=not no_verify, **options)), as_json))


async def _sub(subscriber: Subscriber, as_json: bool) -> int:
    await subscriber.receive(lambda: print_ready(as_json))
    result = subscriber.reception.result()
    print_result(result, as_json)
    return 0 if result.is_lossless else 1
