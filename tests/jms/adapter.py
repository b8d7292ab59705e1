"""One interface to both APIs, asyncio and blocking. Tests await every method of either."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from fjm2 import jms
from fjm2.jms import blocking

WAIT_S = 20.0
"""Longest wait for something that must happen."""
QUIET_S = 0.05
"""Time to wait for something that must not happen."""
OPEN_NAMES = (
    "Connection",
    "Session",
    "MessageProducer",
    "MessageConsumer",
    "JMSContext",
    "JMSProducer",
    "JMSConsumer",
    "Batches",
    "TopicRequestor",
    "TemporaryTopic",
    "TemporaryQueue",
)
SHELLS = tuple(getattr(module, name) for module in (jms, blocking) for name in OPEN_NAMES)


class Awaited:
    """A wrapper of an object of either API whose methods are all awaited.

    Objects that the methods return are wrapped too.
    """

    def __init__(self, api: "Api", inner: Any) -> None:
        object.__setattr__(self, "_api", api)
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not inspect.ismethod(value):
            return self._api.wrap(value)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await self._api.call(value, *arguments, **options)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    async def __aenter__(self) -> "Awaited":
        await self._api.enter(self.inner)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._api.leave(self.inner, *error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._api.next(self.inner)) is not None:
            yield message


class Api:
    """One of the two APIs, called in the same way by all tests. After a test it closes what the test opened."""

    module: Any
    is_blocking: bool

    def __init__(self, port: int) -> None:
        self.uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms&robust_factor=5"
        self.opened: list[Awaited] = []

    def wrap(self, value: Any) -> Any:
        if not isinstance(value, SHELLS):
            return value
        wrapped = Awaited(self, value)
        if isinstance(value, jms.JMSContext | blocking.JMSContext):
            self.opened.append(wrapped)  # its connection is open as long as any of its contexts
        return wrapped

    def unwrap(self, value: Any) -> Any:
        return value.inner if isinstance(value, Awaited) else value

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        plain = [self.unwrap(value) for value in arguments]
        return self.wrap(await self.invoke(function, *plain, **options))

    async def invoke(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def make(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Create and return an object of one of the API's classes, given by name."""
        return await self.call(getattr(self.module, name), *arguments, **options)

    def factory(self, **options: Any) -> Any:
        return self.module.ConnectionFactory(self.uri, **options)

    async def connect(self, is_started: bool = True, **options: Any) -> Any:
        """Return a new connection, which is closed after the test."""
        connection = await self.call(self.factory(**options).create_connection)
        self.opened.append(connection)
        if is_started:
            await connection.start()
        return connection

    async def context(self, mode: int = jms.SessionMode.AUTO_ACKNOWLEDGE, **options: Any) -> Any:
        return await self.call(self.factory(**options).create_context, mode)

    async def enter(self, inner: Any) -> None:
        raise NotImplementedError

    async def leave(self, inner: Any, *error: Any) -> None:
        raise NotImplementedError

    async def next(self, inner: Any) -> Any:
        raise NotImplementedError

    async def acknowledge(self, message: jms.Message) -> None:
        await self.invoke(message.acknowledge)

    async def close(self) -> None:
        for opened in reversed(self.opened):
            await opened.close()


class Asyncio(Api):
    module = jms
    is_blocking = False

    async def invoke(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        return await result if inspect.isawaitable(result) else result

    async def enter(self, inner: Any) -> None:
        await inner.__aenter__()

    async def leave(self, inner: Any, *error: Any) -> None:
        await inner.__aexit__(*error)

    async def next(self, inner: Any) -> Any:
        try:
            return await inner.__anext__()
        except StopAsyncIteration:
            return None


class Blocking(Api):
    module = blocking
    is_blocking = True

    async def invoke(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(function, *arguments, **options)

    async def enter(self, inner: Any) -> None:
        await asyncio.to_thread(inner.__enter__)

    async def leave(self, inner: Any, *error: Any) -> None:
        await asyncio.to_thread(inner.__exit__, *error)

    async def next(self, inner: Any) -> Any:
        return await asyncio.to_thread(next, inner, None)


def listener(api: Api, body: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Any], Any]:
    """Return a listener that runs a coroutine function.

    In the blocking API, the function runs in its own event loop.
    """
    if not api.is_blocking:
        return body

    def run(message: Any) -> None:
        asyncio.run(body(message))

    return run


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition is true. Fail after `WAIT_S`."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)


async def texts(consumer: Any, count: int) -> list[str]:
    """Receive `count` messages, and return their texts. Fail if there are fewer or more messages."""
    found: list[str] = []
    for _ in range(count):
        message = await consumer.receive(WAIT_S)
        assert message is not None, f"only {found}"
        found.append(message.text)
    assert await consumer.receive(0) is None
    return found


async def send_texts(session: Any, destination: Any, *bodies: str, **options: Any) -> None:
    producer = await session.create_producer(destination)
    for body in bodies:
        await producer.send(jms.TextMessage(body), **options)
