"""`fjm2 reply`: answers requests on a topic."""

import asyncio
import contextlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime

import click

from fjm2.base.errors import FJM2Error
from fjm2.base.quantities import counted
from fjm2.jms import BytesMessage, Destination, Message, MessageConsumer, TextMessage, Topic, TopicPattern

from .support.bus_link import BusLink, open_bus_link, say
from .support.bus_options import SelectorText, TopicNames, bus_options, timeout_option
from .support.common import run
from .support.rendering import body_bytes, describe_error

_PLACE = re.compile(rb"\{(request|number|time)\}")

Answer = Callable[[bytes, int], Awaitable[bytes | None]]
"""A function that returns the reply to a request, given the body and the number of the request. None means no reply."""


@click.command()
@click.argument("topic", type=TopicNames())
@click.argument("body", required=False)
@click.option("--echo", is_flag=True, help="Reply with the request's own body.")
@click.option("--command", metavar="COMMAND", help="Reply with its output, given the body of the request as input.")
@click.option("--selector", type=SelectorText(), metavar="SELECTOR", help="Answer only matching requests.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many requests.  [default: at Ctrl-C]")
@timeout_option("End after this time in any case.")
@bus_options
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def reply(
    topic: Topic | TopicPattern,
    body: str | None,
    echo: bool,
    command: str | None,
    selector: str | None,
    count: int | None,
    timeout_s: float | None,
    uri: str,
    client_id: str | None,
    quiet: bool,
) -> None:
    """Answer requests on TOPIC with BODY, in which {request}, {number} and {time} are replaced.

    Bytes are answered with bytes, everything else with text. --command is run once per request, without a shell; if it
    fails, there is no reply. The exit code is 1 if messages were lost, or fewer than --count requests arrived.

    \b
    Example: fjm2 reply time "it is {time}"
             fjm2 reply upper --command "tr a-z A-Z"
    """
    if (body is not None) + echo + (command is not None) != 1:
        raise click.UsageError("expected exactly one of BODY, --echo and --command")
    answer = _echo if echo else _filled_in(body) if body is not None else _output_of(command or "")
    run(_reply(topic, answer, selector, count, timeout_s, uri, client_id, quiet))


async def _echo(request: bytes, _: int) -> bytes:
    return request


def _filled_in(template: str) -> Answer:
    async def answer(request: bytes, number: int) -> bytes:
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        values = {b"request": request, b"number": b"%d" % number, b"time": now.encode()}
        return _PLACE.sub(lambda place: values[place[1]], template.encode(errors="surrogateescape"))

    return answer


def _output_of(command: str) -> Answer:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--command {command!r}: {error}") from None
    if not words:
        raise click.UsageError("--command is empty")
    if shutil.which(words[0]) is None:
        raise click.UsageError(f"--command {words[0]!r}: no such program")

    async def answer(request: bytes, _: int) -> bytes | None:
        # A file instead of a pipe, since a command need not read its input.
        with tempfile.TemporaryFile() as given:
            given.write(request)
            given.seek(0)
            process = await asyncio.create_subprocess_exec(*words, stdin=given, stdout=asyncio.subprocess.PIPE)
        try:
            out, _err = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.returncode:
            say(f"warning: {words[0]} failed with exit code {process.returncode}: no reply")
            return None
        return out

    return answer


async def _reply(
    topic: Topic | TopicPattern,
    answer: Answer,
    selector: str | None,
    count: int | None,
    timeout_s: float | None,
    uri: str,
    client_id: str | None,
    quiet: bool,
) -> int:
    async with open_bus_link(uri, client_id) as link:
        replier = _Replier(link, answer)
        consumer = link.session.create_consumer(topic, selector)
        await consumer.ready()
        if not quiet:
            say(f"listening on {topic}")
        try:
            async with asyncio.timeout(timeout_s):
                await replier.serve(consumer, count)
        except TimeoutError:
            pass
        finally:
            if not quiet:
                say(f"{counted(replier.replies, 'reply')} to {counted(replier.requests, 'request')}")
    return 0 if not link.losses and (count is None or replier.requests >= count) else 1


class _Replier:
    """Answers requests, one after the other."""

    def __init__(self, link: BusLink, answer: Answer) -> None:
        self._producer = link.session.create_producer()
        self._answer = answer
        self.requests = 0
        self.replies = 0

    async def serve(self, consumer: MessageConsumer, count: int | None) -> None:
        while count is None or self.requests < count:
            request = await consumer.receive()
            if request is not None:
                self.requests += 1
                await self._serve_one(request)

    async def _serve_one(self, request: Message) -> None:
        try:
            reply_to, content = request.reply_to, body_bytes(request)
            correlation_id = request.message_id or request.correlation_id
        except FJM2Error as error:
            say(f"warning: {describe_error(error, request)}")
            return
        if reply_to is None:
            say(f"warning: {request.message_id} has no reply-to")
            return
        body = await self._answer(content, self.requests)
        if body is not None:
            reply = _message(body, isinstance(request, BytesMessage))
            reply.correlation_id = correlation_id
            await self._send(reply, reply_to)

    async def _send(self, reply: Message, reply_to: Destination) -> None:
        try:
            await self._producer.send(reply, reply_to)
        except FJM2Error as error:
            say(f"warning: no reply to {reply_to}: {error}")
        else:
            self.replies += 1


def _message(body: bytes, as_bytes: bool) -> Message:
    """Return a text message with this body, or a bytes message if `as_bytes` is True or the body is not UTF-8."""
    if not as_bytes:
        with contextlib.suppress(UnicodeDecodeError):
            return TextMessage(body.decode())
    return BytesMessage(body)
