"""FJM2: keepers, a publisher and durable subscribers, by its JMS API."""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

from fjm2.base.event_loop import uvloop_class
from fjm2.jms import BytesMessage, ConnectionFactory, JMSContext, Message, SessionMode, Topic

from ..networks.namespaces import Host
from ..peers.base import Deadline
from ..workload.messages import Maker
from .awaited import AwaitedTimes
from .roles import FLYING_MAX, SUBSCRIPTION, TOPIC, Consumption, Role, RoleOptions, tell, until_set, word
from .servers import Server, servers, until
from .steady import follow, publish_steadily

_DESTINATION = Topic(TOPIC)
_STORE_BYTES = "8GiB"
_EMPTY_STORE_BYTES = "64MiB"
"""Size of the stores of a cell that gets no messages. A keeper writes segments beforehand, of a twentieth of that."""
_WINDOW = 4096
"""Messages that the publisher sends before one of them is confirmed."""
_STABLE = ({"serving"}, {"serving", "follower"})
"""States of the keepers of a cell that serves: of one at least, and of all."""


SETTINGS = "ttl=0&rate=none&flow=min&loopback=off"
"""Query of the bus URI, as of FJM2 in the other benchmarks on one host."""


def uri_of(port: int) -> str:
    """Return the URI of the bus of a run."""
    return f"fjm2://:{port}?interface=lo&{SETTINGS}"


class Fjm2Cell:
    """A cell of keepers."""

    is_brokerless = True

    def __init__(self, name: str, keepers: int) -> None:
        self.name = name
        self._keepers = keepers
        many = "three keepers, of which two store before a send is confirmed" if keepers > 1 else "one keeper"
        self.settings = (
            f"{many}, with fdatasync; a session's send_async, with at most {_WINDOW} messages sent before one is "
            "confirmed; a durable consumer that acknowledges by the client, and waits for the cell's decisions, with "
            f"at most {FLYING_MAX} on their way; ?{SETTINGS}."
        )

    def missing(self) -> str | None:
        return None

    @contextmanager
    def serve(self, options: RoleOptions) -> Iterator[list[int]]:
        with self.started(options) as started:
            until_serving(started, Deadline(options.timeout_s))
            yield [server.pid for server in started]

    @contextmanager
    def started(self, options: RoleOptions, host: Host | None = None) -> Iterator[list[Server]]:
        """Run the keepers in a context, in the namespace of a host if one is given. Call `until_serving` then."""
        commands = [self._command(number, options) for number in range(1, self._keepers + 1)]
        if host is not None:
            commands = [list(host.inside(*command)) for command in commands]
        with servers(commands, options.folder) as keepers:
            yield keepers

    def _command(self, number: int, options: RoleOptions) -> list[str]:
        keep = [sys.executable, "-m", "fjm2", "keep", str(options.folder / f"keeper{number}")]
        store_bytes = _STORE_BYTES if options.total else _EMPTY_STORE_BYTES
        settings = ["--replicas", str(self._keepers), "--store-bytes", store_bytes, "--uri", uri_of(options.port)]
        return [*keep, *settings, "--json"]

    def run(self, role: Role, options: RoleOptions) -> None:
        uri = uri_of(options.port)
        roles: dict[Role, Callable[[RoleOptions], Coroutine[Any, Any, None]]] = {
            Role.PUB: _publish,
            Role.SUB: self._subscribe,
            Role.AWAITED: _send_awaited,
            Role.STEADY: partial(publish_steadily, uri),
            Role.FOLLOW: partial(follow, self.name, uri),
        }
        _run(roles[role](options))

    async def _subscribe(self, options: RoleOptions) -> None:
        name = f"{SUBSCRIPTION}{options.number}"
        consumption = Consumption(self.name, options)
        over = asyncio.Event()

        async def take(message: Message) -> None:
            if consumption.take(cast(bytes, message.get_body(bytes))):
                await consumption.acknowledge(message.acknowledge())
                if consumption.is_complete:
                    over.set()

        factory = ConnectionFactory(uri_of(options.port), client_id=name)
        async with factory.create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
            consumer = await context.create_durable_consumer(_DESTINATION, name)
            if options.total:
                consumer.message_listener = take
            tell(ready=True)
            if options.total:
                await until_set(over, consumption.deadline, "receiving")
            await word()


@asynccontextmanager
async def _context(options: RoleOptions) -> AsyncIterator[JMSContext]:
    async with ConnectionFactory(uri_of(options.port)).create_context() as context:
        await context.ready()  # keepers store what is sent once they are known
        yield context


async def _publish(options: RoleOptions) -> None:
    maker = Maker(options.size)
    outcomes: deque[Awaitable[None]] = deque()
    async with ConnectionFactory(uri_of(options.port)).create_connection() as connection:
        await connection.ready()  # keepers store what is sent once they are known
        producer = connection.create_session().create_producer(_DESTINATION)

        async def send(count: int) -> None:
            for bodies in maker.messages(count, has_views=False):
                for body in bodies:
                    message = BytesMessage()
                    message.write_bytes(body)
                    outcomes.append(producer.send_async(message))
                while len(outcomes) > _WINDOW:
                    await outcomes.popleft()
            while outcomes:
                await outcomes.popleft()

        await send(options.warm_up)
        tell(warm=True)
        await word()
        began_ns = time.monotonic_ns()
        await send(options.count)
        tell(began_ns=began_ns, ended_ns=time.monotonic_ns(), messages=options.count)
        await word()


async def _send_awaited(options: RoleOptions) -> None:
    times, maker = AwaitedTimes(options), Maker(options.size)
    async with _context(options) as context:
        producer = context.create_producer()
        for _ in range(options.total):
            message = maker.batch(1)
            with times.one():
                await producer.send(_DESTINATION, message)
        times.tell()
        await word()


def until_serving(keepers: list[Server], deadline: Deadline) -> None:
    """Wait until a cell serves and all of its keepers belong to it."""
    until(lambda: _is_serving(keepers), keepers, deadline)


def _is_serving(keepers: list[Server]) -> bool:
    states = {_state_of(keeper) for keeper in keepers}
    served, all_of = _STABLE
    return bool(states & served) and states <= all_of


def _state_of(keeper: Server) -> str:
    lines = keeper.log.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.startswith("{") and line.endswith("\n")]
    return str(json.loads(whole[-1])["state"]) if whole else ""


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop_class()) as runner:
        runner.run(main)
