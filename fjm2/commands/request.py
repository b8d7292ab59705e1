"""`fjm2 request`: sends a request to a topic, and prints the replies."""

import asyncio
import os
from typing import Any

import click

from fjm2.base.quantities import counted
from fjm2.bus.membership import Subscriber
from fjm2.jms import Message, Topic

from .support.bodies import STDIN, MessageTemplate
from .support.bus_link import BusLink, open_bus_link
from .support.bus_options import TopicName, bus_options, message_options, output_options, timeout_option
from .support.common import run
from .support.receiving import Printer, abandon_stdout
from .support.rendering import formatter_for
from .support.streams import read_all


@click.command()
@click.argument("topic", type=TopicName())
@click.argument("body")
@click.option(
    "--replies",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Number of replies to wait for; 0 for all that arrive in time.",
)
@timeout_option("Time to wait for replies.", 5.0)
@message_options
@output_options
@bus_options
def request(
    topic: Topic,
    body: str,
    replies: int,
    timeout_s: float,
    as_json: bool,
    with_headers: bool,
    no_newline: bool,
    uri: str,
    client_id: str | None,
    **form: Any,
) -> None:
    """Send BODY (- for all of standard input) to TOPIC, and print the replies.

    The exit code is 1 if fewer than --replies replies arrived in time, or none.

    \b
    Example: fjm2 request time "what time is it?" --timeout 2
    """
    printer = Printer(formatter_for(as_json, with_headers, no_newline))
    run(_request(topic, body, replies, timeout_s, MessageTemplate(**form), printer, uri, client_id))


async def _request(
    topic: Topic,
    body: str,
    replies: int,
    timeout_s: float,
    form: MessageTemplate,
    printer: Printer,
    uri: str,
    client_id: str | None,
) -> int:
    message = form.message(await read_all() if body == STDIN else os.fsencode(body))
    known: dict[int, Subscriber] = {}
    asked_at = asyncio.get_running_loop().time()
    async with open_bus_link(uri, client_id) as link:
        try:
            async with asyncio.timeout(timeout_s):
                await link.bus.ready()
                known = link.bus.membership.known_subscribers(topic)
                await _ask(link, topic, message, form, printer, replies or None)
        except TimeoutError:
            if not printer.messages or printer.messages < replies:
                asked = link.bus.membership.describe_asked(topic, asked_at, known)
                reason = None if printer.messages else link.cut_off()
                reason = reason or _missing(printer.messages, replies, topic, timeout_s, asked)
                raise click.ClickException(reason) from None
        except BrokenPipeError:
            abandon_stdout()
    return 1 if link.losses or printer.unreadable else 0


async def _ask(
    link: BusLink, topic: Topic, message: Message, form: MessageTemplate, printer: Printer, replies: int | None
) -> None:
    reply_to = link.session.create_temporary_topic()
    consumer = link.session.create_consumer(reply_to)
    message.reply_to = reply_to
    producer = link.session.create_producer(topic)
    form.configure(producer)
    await producer.send(message)
    await printer.print_from(consumer, replies)


def _missing(came: int, wanted: int, topic: Topic, timeout_s: float, asked: str) -> str:
    told = f"{came} of {counted(wanted, 'reply')}" if came else "no reply"
    return f"{told} from {topic} within {timeout_s:g} s: {asked}"
