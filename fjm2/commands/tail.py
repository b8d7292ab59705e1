"""`fjm2 tail`: prints messages as an onlooker, without sending anything."""

import asyncio
import shutil
import sys
from collections import deque
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Final

import click

from fjm2.base.errors import FJM2Error
from fjm2.base.quantities import counted, one_line
from fjm2.jms import Message, Selector, Topic, TopicPattern
from fjm2.messages.destination import KIND_FLAGS
from fjm2.messages.files.parts import is_later_part
from fjm2.messages.frame import Frame, is_sent_to, look_up, name_of
from fjm2.messages.header import CONNECTION_ID, DESTINATION_HASH, FLAGS
from fjm2.messages.message import open_message

from .support.bus_link import say
from .support.bus_options import SelectorText, TopicNames, timeout_option
from .support.common import run
from .support.live_view import Onlooker, open_onlooker, uri_option
from .support.receiving import abandon_stdout
from .support.rendering import body_bytes, describe_error, formatter_for
from .support.streams import write

_WAITING_BYTES_MAX: Final = 16 << 20
_WAITING_MAX: Final = 50_000
"""Greatest number of messages that wait for the output. Further messages are dropped and counted, to bound the
memory."""
_BATCH_BYTES: Final = 1 << 16  # written at once: few system calls, and no long delay
_FRAME_COST_BYTES: Final = 500  # memory of the objects that hold a waiting message
_CHECK_S: Final = 1.0  # seconds between two lines about missed messages


class TailQueue:
    """Messages that wait for the output. Messages without room are dropped and counted."""

    def __init__(self, topic: Topic | TopicPattern | None, selector: Selector | None) -> None:
        self.dropped = 0
        self.unreadable = 0
        self._topic = topic
        self._selector = selector
        self._waiting: deque[tuple[Message, int, int]] = deque()
        self._bytes = 0
        self._is_news = asyncio.Event()

    def add(self, frame: Frame, _sender_id: int) -> None:
        """Add the message of a frame, if topic and selector fit."""
        buffer, start, body, end, header = frame
        if not self._is_wanted(frame) or is_later_part(buffer, start, header):
            return
        size = end - start + _FRAME_COST_BYTES
        if len(self._waiting) >= _WAITING_MAX or (self._bytes + size > _WAITING_BYTES_MAX and self._waiting):
            self.dropped += 1
            return
        self._bytes += size
        self._waiting.append((open_message(buffer[start:body], buffer[body:end], header), header[CONNECTION_ID], size))
        self._is_news.set()

    def _is_wanted(self, frame: Frame) -> bool:
        buffer, start, _, _, header = frame
        if self._topic is not None and not self._is_topic(frame, self._topic):
            return False
        if self._selector is None:
            return True
        try:
            return self._selector.evaluate(partial(look_up, buffer, start, header))
        except FJM2Error:
            self.unreadable += 1
            return False

    @staticmethod
    def _is_topic(frame: Frame, topic: Topic | TopicPattern) -> bool:
        buffer, start, _, _, header = frame
        if isinstance(topic, Topic):
            return header[DESTINATION_HASH] == topic.frame_hash and is_sent_to(buffer, start, header, topic)
        try:
            return not header[FLAGS] & KIND_FLAGS and topic.matches(name_of(buffer, start, header))
        except FJM2Error:
            return False

    async def next(self) -> tuple[Message, int]:
        """Wait for the next message. Return it, and the id of the connection that sent it."""
        while not self._waiting:
            self._is_news.clear()
            await self._is_news.wait()
        return self.pop()

    def pop(self) -> tuple[Message, int]:
        message, connection_id, size = self._waiting.popleft()
        self._bytes -= size
        return message, connection_id

    def __len__(self) -> int:
        return len(self._waiting)


@click.command()
@click.argument("topic", type=TopicNames(), required=False)
@click.option("--all", "is_all", is_flag=True, help="Follow all topics, queues and temporary destinations.")
@click.option(
    "--selector", type=SelectorText(), metavar="SELECTOR", help='Follow only matching messages, such as "price > 5".'
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.  [default: at Ctrl-C]")
@timeout_option("End after this time in any case.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message, like `fjm2 sub --json`.")
@uri_option
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def tail(
    topic: Topic | TopicPattern | None,
    is_all: bool,
    selector: str | None,
    count: int | None,
    timeout_s: float | None,
    as_json: bool,
    uri: str,
    quiet: bool,
) -> None:
    """Follow the messages of TOPIC, of all topics that match a pattern, or of the whole bus, one short line each.

    Unlike `fjm2 sub`, it is an onlooker: it sends nothing, so that no publisher waits for it, and nothing is repaired
    for it. Missed messages, and those that the output was too slow for, are reported. Messages are shown as they pass,
    even if they have expired, or their transaction is incomplete.

    The exit code is 1 if something was missed, or fewer than --count messages arrived.

    \b
    Example: fjm2 tail prices.eu
             fjm2 tail --all --json --timeout 10
             fjm2 tail orders --selector "amount > 1000"
             fjm2 tail "prices.>"
    """
    if (topic is None) == (not is_all):
        raise click.UsageError("expected either TOPIC or --all")
    run(_tail(topic, selector, count, timeout_s, as_json, uri, quiet))


async def _tail(
    topic: Topic | TopicPattern | None,
    selector: str | None,
    count: int | None,
    timeout_s: float | None,
    as_json: bool,
    uri: str,
    quiet: bool,
) -> int:
    queue = TailQueue(topic, None if selector is None else Selector(selector))
    async with open_onlooker(uri, on_frame=queue.add) as onlooker:
        follower = _Follower(onlooker, queue, as_json, not isinstance(topic, Topic))
        began_at = monotonic()
        if not quiet:
            say(f"watching {'the whole bus' if topic is None else topic}")
        try:
            async with asyncio.timeout(timeout_s):
                await follower.follow(count)
        except TimeoutError:
            pass
        except BrokenPipeError:
            abandon_stdout()
            count = None
        finally:
            follower.tell_missed()
            if not quiet:
                say(f"{counted(follower.messages, 'message')} in {monotonic() - began_at:.1f} s")
    is_complete = count is None or follower.messages >= count
    return 0 if is_complete and not follower.is_gapped and not queue.unreadable else 1


class _Follower:
    """Writes messages to standard output."""

    def __init__(self, onlooker: Onlooker, queue: TailQueue, as_json: bool, shows_topic: bool) -> None:
        self.messages = 0
        self.is_gapped = False
        self._watch = onlooker.watch
        self._queue = queue
        self._json = formatter_for(True, False, False) if as_json else None
        self._shows_topic = shows_topic
        self._told = (0, 0)
        self._looked_at = 0.0

    async def follow(self, count: int | None) -> None:
        """Write `count` messages, or all until this is cancelled. Raise BrokenPipeError if nobody reads the output any
        more."""
        while count is None or self.messages < count:
            try:
                async with asyncio.timeout(_CHECK_S):
                    first = await self._queue.next()
            except TimeoutError:
                self.tell_missed()
                continue
            pieces = [self._line(*first)]
            size = len(pieces[0])
            while len(self._queue) and self.messages != count and size < _BATCH_BYTES:
                pieces.append(self._line(*self._queue.pop()))
                size += len(pieces[-1])
            await write(b"".join(pieces))
            if monotonic() - self._looked_at > _CHECK_S:
                self.tell_missed()

    def tell_missed(self) -> None:
        """Report messages missed and dropped since the last report."""
        self._looked_at = monotonic()
        missed, dropped = self._watch.bytes_missed, self._queue.dropped
        if missed > self._told[0]:
            say(f"missed: {missed - self._told[0]:,} bytes of streams were not received")
        if dropped > self._told[1]:
            say(f"dropped: {counted(dropped - self._told[1], 'message')}, because the output is too slow")
        self._told = missed, dropped
        self.is_gapped = bool(missed or dropped)

    def _line(self, message: Message, connection_id: int) -> bytes:
        self.messages += 1
        try:
            if self._json is not None:
                return self._json(message)
            return self._short(message, self._watch.label_of(connection_id))
        except FJM2Error as error:
            self._queue.unreadable += 1
            say(describe_error(error, message))
            return b""

    def _short(self, message: Message, publisher: str) -> bytes:
        told = [_moment(message.timestamp)]
        if self._shows_topic:
            destination = message.destination
            told.append(destination.name if type(destination) is Topic else str(destination))
        told += [publisher, body_bytes(message).decode(errors="backslashreplace")]
        line = one_line("  ".join(told))
        if sys.stdout.isatty():
            line = _cut(line, shutil.get_terminal_size().columns)
        return line.encode() + b"\n"


def _moment(milliseconds: int) -> str:
    """Return the local time of day of a timestamp, or "-" if the publisher sent no timestamp or an impossible one."""
    try:
        at = datetime.fromtimestamp(milliseconds / 1000)
    except (OverflowError, ValueError, OSError):
        return "-"
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}" if milliseconds else "-"


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else f"{line[: columns - 3]}..."
