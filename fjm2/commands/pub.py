"""`fjm2 pub`: publishes messages on a topic."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import click

from fjm2.base.quantities import counted
from fjm2.bus.bus import Bus
from fjm2.bus.membership import uncertain_text
from fjm2.jms import FileMessage, Topic
from fjm2.jms.sends.cell_client import CellClient

from .support.bodies import NUMBER, STDIN, Bodies, MessageTemplate, Pace
from .support.bus_link import BusLink, open_bus_link, say
from .support.bus_options import TopicName, bus_options, message_options, timeout_option
from .support.common import Number, is_quiet, run

_SIZE_BYTES = 1024  # size of a test message: usual for benchmarks, and fits one datagram


@click.command()
@click.argument("topic", type=TopicName())
@click.argument("body", required=False)
@click.option("--count", type=click.IntRange(min=1), help="Send this many messages.  [default: 1]")
@click.option("--size", type=click.IntRange(1, 60_000_000), help=f"Bytes of a test message.  [default: {_SIZE_BYTES}]")
@click.option("--rate", type=Number(1e-6, 1e9), help="Messages a second.  [default: as fast as possible]")
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Send this file, of any size, as one message."
)
@click.option("--whole", is_flag=True, help="Send all of standard input as one message, not one per line.")
@click.option(
    "-r", "--retain", "is_retained", is_flag=True, help="Have keepers keep the message as the last value of the topic."
)
@click.option(
    "--retain-key",
    "retain_key",
    metavar="PROPERTY",
    help="Have them keep the last message for each value of this property.",
)
@message_options
@bus_options
@timeout_option("Time for subscribers to confirm everything at the end.", 30.0)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def pub(
    topic: Topic,
    body: str | None,
    count: int | None,
    size: int | None,
    rate: float | None,
    whole: bool,
    path: str | None,
    is_retained: bool,
    retain_key: str | None,
    uri: str,
    client_id: str | None,
    timeout_s: float,
    quiet: bool,
    **form: Any,
) -> None:
    """Publish messages on TOPIC.

    BODY is the text to send, or - for standard input, with a message per line. Without BODY, --count or --size send
    numbered test messages, whose property "number" counts from 1. The command ends when all known subscribers have
    confirmed everything, or at once if there are none. The exit code is 1 if a subscriber did not confirm, or if the
    messages cannot leave this host.

    With --retain or --retain-key, keepers give the message to those who come later: fjm2 sub --last-values. An empty
    BODY removes it.

    \b
    Example: fjm2 pub prices 17.25 -p symbol=ABC
             tail -f log | fjm2 pub logs -
             fjm2 pub test --count 100000 --size 512 --rate 5000
             fjm2 pub images --file disk.img
             fjm2 pub prices 17.25 -p symbol=ABC --retain-key symbol
    """
    if path is not None and (body is not None or count is not None or size is not None or form["as_bytes"]):
        raise click.UsageError("--file is not valid with BODY, --count, --size or --bytes")
    if body is None and count is None and size is None and path is None:
        raise click.UsageError(
            "expected BODY, or - for standard input, or --count or --size for test messages, or --file"
        )
    if body is not None and size is not None:
        raise click.UsageError("--size is only valid for test messages, without BODY")
    if body == STDIN and count is not None:
        raise click.UsageError("--count is not valid for standard input")
    if whole and body != STDIN:
        raise click.UsageError("--whole is only valid for standard input: fjm2 pub TOPIC - --whole")
    retain: bool | str = is_retained if retain_key is None else retain_key
    if retain is not False and (path is not None or form["non_persistent"]):
        raise click.UsageError("--retain and --retain-key are not valid with --file or --non-persistent")
    if path is not None:
        run(_pub_file(topic, path, MessageTemplate(**form), uri, client_id, timeout_s, quiet))
        return
    bodies = Bodies(body, whole, count, size or _SIZE_BYTES)
    run(_pub(topic, bodies, MessageTemplate(**form), retain, rate, uri, client_id, timeout_s, quiet))


async def _pub(
    topic: Topic,
    bodies: Bodies,
    form: MessageTemplate,
    retain: bool | str,
    rate: float | None,
    uri: str,
    client_id: str | None,
    timeout_s: float,
    quiet: bool,
) -> int:
    async with open_bus_link(uri, client_id) as link:
        link.confirms_all = not form.non_persistent
        tally = _Tally()
        try:
            with _progress(tally, bodies.total, quiet or is_quiet(False) or bodies.total == 1):
                # Discover the subscribers before sending, since flow control and the end of this command wait for them.
                await link.bus.ready()
                tally.note_subscribers(link.bus, topic)
                tally.began_at = monotonic()
                await _send(link, topic, bodies, form, retain, Pace(rate), tally)
                if form.non_persistent:
                    await link.sent()
                else:
                    await link.confirmed(timeout_s)
        finally:
            if not quiet:
                tally.note_subscribers(link.bus, topic)
                tally.keepers = _keepers(link, topic, form)
                say(tally.summary(topic))
        has_failed = link.has_failed(tally.subscribers)
    return 1 if has_failed or link.is_unconfirmed else 0


async def _pub_file(
    topic: Topic,
    path: str,
    form: MessageTemplate,
    uri: str,
    client_id: str | None,
    timeout_s: float,
    quiet: bool,
) -> int:
    async with open_bus_link(uri, client_id) as link:
        link.confirms_all = not form.non_persistent
        await link.bus.ready()
        tally = _Tally()
        tally.note_subscribers(link.bus, topic)
        message = FileMessage(path)
        form.stamp(message)
        producer = link.session.create_producer(topic)
        form.configure(producer)
        with _file_progress(message, quiet or is_quiet(False)):
            await producer.send(message)
            if not form.non_persistent:
                await link.confirmed(timeout_s)
        tally.messages, tally.bytes = 1, message.size
        if not quiet:
            say(tally.summary(topic))
        has_failed = link.has_failed(tally.subscribers)
    return 1 if has_failed or link.is_unconfirmed else 0


def _keepers(link: BusLink, topic: Topic, form: MessageTemplate) -> int:
    """Return the number of keepers that store what is sent to a topic."""
    return 0 if form.non_persistent else CellClient.of(link.bus).keepers_of(topic)


@contextmanager
def _file_progress(message: FileMessage, is_hidden: bool) -> Iterator[None]:
    """Show on the terminal how much of a file is sent."""
    if is_hidden:
        yield
        return
    # Only now: what is seldom shown takes a while to load.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (TextColumn("sending"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=message.size)
        message.on_progress = lambda progress: bar.update(task, completed=progress.done)
        yield


class _Tally:
    """Counts of messages sent."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.subscribers = 0
        self.uncertain = 0
        """Those of the subscribers that may get the topic by a pattern."""
        self.keepers = 0
        """Keepers that store the messages; 0 if none does."""
        self.began_at = monotonic()

    def note_subscribers(self, bus: Bus, topic: Topic) -> None:
        """Note how many subscribers are known, if they are not fewer than before: some end with the last message."""
        count = bus.subscribers(topic)
        if count >= self.subscribers:
            self.subscribers, self.uncertain = count, bus.membership.uncertain_subscribers(topic)

    def summary(self, topic: Topic) -> str:
        took_s = monotonic() - self.began_at
        size = counted(self.bytes, "byte")
        if self.messages == 1:
            told = f"1 message of {size} to {topic}"
        else:
            told = f"{counted(self.messages, 'message')}, {size} in all, to {topic}"
        if self.messages > 1:
            told += f" in {took_s:.2f} s, {self.messages / took_s:,.0f}/s, {self.bytes * 8e-6 / took_s:,.1f} Mbit/s"
        known = max(self.subscribers - self.uncertain, 0)
        others = f", and {uncertain_text(self.uncertain)}" if self.uncertain else ""
        kept = f", stored by {counted(self.keepers, 'keeper')}" if self.keepers else ""
        return f"{told}; {counted(known, 'subscriber') if known else 'no known subscribers'}{others}{kept}"


async def _send(
    link: BusLink,
    topic: Topic,
    bodies: Bodies,
    form: MessageTemplate,
    retain: bool | str,
    pace: Pace,
    tally: _Tally,
) -> None:
    producer = link.session.create_producer(topic)
    form.configure(producer)
    async for body in bodies:
        await pace.wait()
        message = form.message(body)
        if bodies.is_test:
            message.set_object_property(NUMBER, tally.messages + 1)
        await producer.send(message, retain=retain)
        tally.messages += 1
        tally.bytes += len(body)


@contextmanager
def _progress(tally: _Tally, total: int | None, is_hidden: bool) -> Iterator[None]:
    """Show a progress bar on the terminal."""
    if is_hidden:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("sending"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, rate=0.0)

        async def update() -> None:
            before, seen_at = tally.messages, monotonic()
            while True:
                await asyncio.sleep(0.2)
                now = monotonic()
                bar.update(task, completed=tally.messages, rate=(tally.messages - before) / (now - seen_at))
                before, seen_at = tally.messages, now

        updater = asyncio.get_running_loop().create_task(update())
        try:
            yield
        finally:
            updater.cancel()
