"""`fjm2 sub`: prints the messages of a topic."""

import asyncio
from time import monotonic

import click

from fjm2.base.quantities import counted
from fjm2.jms import Overflow, Topic, TopicPattern

from .support.bus_link import open_bus_link, say
from .support.bus_options import SelectorText, TopicNames, bus_options, output_options, timeout_option
from .support.common import run
from .support.receiving import Printer, abandon_stdout
from .support.rendering import formatter_for, saving


@click.command()
@click.argument("topic", type=TopicNames())
@click.option(
    "--selector", type=SelectorText(), metavar="SELECTOR", help='Print only matching messages, such as "price > 5".'
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.  [default: at Ctrl-C]")
@timeout_option("End after this time in any case.")
@output_options
@click.option(
    "--save-to",
    type=click.Path(exists=True, file_okay=False, writable=True),
    metavar="DIR",
    help="Keep received files in this folder, under their own names.",
)
@click.option(
    "--overflow",
    default=Overflow.BLOCK.value,
    show_default=True,
    type=click.Choice([overflow.value for overflow in Overflow]),
    help="If the output is too slow: block the publishers, or drop messages.",
)
@click.option("--last-values", is_flag=True, help="Print first what keepers have of messages sent with --retain.")
@bus_options
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def sub(
    topic: Topic | TopicPattern,
    selector: str | None,
    count: int | None,
    timeout_s: float | None,
    as_json: bool,
    with_headers: bool,
    no_newline: bool,
    save_to: str | None,
    overflow: str,
    last_values: bool,
    uri: str,
    client_id: str | None,
    quiet: bool,
) -> None:
    """Print the messages of TOPIC, or of all topics that match a pattern.

    Text and bytes are printed unchanged, maps, streams and objects as JSON. For a file, the name and the size are
    printed; --save-to keeps the file. The exit code is 1 if messages were lost or dropped, or fewer than --count
    arrived.

    \b
    Example: fjm2 sub prices --selector "symbol = 'ABC' AND price > 17"
             fjm2 sub prices --json --count 10
             fjm2 sub "prices.>" --headers
             fjm2 sub images --save-to downloads
             fjm2 sub "prices.>" --last-values
    """
    show = formatter_for(as_json, with_headers, no_newline)
    if save_to is not None:
        show = saving(show, save_to)
    run(_sub(topic, selector, count, timeout_s, Printer(show), overflow, last_values, uri, client_id, quiet))


async def _sub(
    topic: Topic | TopicPattern,
    selector: str | None,
    count: int | None,
    timeout_s: float | None,
    printer: Printer,
    overflow: str,
    last_values: bool,
    uri: str,
    client_id: str | None,
    quiet: bool,
) -> int:
    is_read = True
    async with open_bus_link(uri, client_id) as link:
        consumer = link.session.create_consumer(topic, selector, overflow=Overflow(overflow), last_values=last_values)
        await consumer.ready()
        if not quiet:
            say(f"listening on {topic}")
        began_at = monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await printer.print_from(consumer, count)
        except TimeoutError:
            pass
        except BrokenPipeError:
            is_read = False
            abandon_stdout()
        finally:
            if not quiet:
                losses = f", {counted(link.losses, 'loss')}" if link.losses else ""
                say(f"{counted(printer.messages, 'message')} in {monotonic() - began_at:.1f} s{losses}")
    is_complete = count is None or printer.messages >= count or not is_read
    return 0 if is_complete and not link.losses and not printer.unreadable else 1
