"""Applications for asyncio."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self

from fjm2.jms import ConnectionFactory, JMSContext, JMSError, Message, MessageConsumer
from fjm2.jms.context import session_of

from .handler import Handler
from .listeners import AnyApp, Listener

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class App(AnyApp[JMSContext]):
    """Functions that get messages, and start and stop together. Takes the arguments of `ConnectionFactory`.

    Each listener has a session of its own: it gets one message at a time, in order, while other listeners run
    concurrently. A function or a coroutine function may be a listener; a function that blocks holds up the event loop,
    and is better off in `fjm2.app.blocking.App`.
    """

    def __init__(self, uri: str | None = None, **options: Any) -> None:
        self._factory = ConnectionFactory(uri, **options)
        super().__init__(self._factory.uri, "codec" in options)
        self._stack = AsyncExitStack()
        self._consumers: list[MessageConsumer] = []
        self._stopping: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        self._check_stopped("start")
        async with AsyncExitStack() as stack:
            self._context = context = await stack.enter_async_context(self._factory.create_context())
            stack.callback(self._note_end)
            context.auto_start = False
            context.exception_listener = self.exception_listener
            for listener in self._listeners:
                own = await stack.enter_async_context(context.create_context())
                self._consumers.append(self._attach(listener, own))
            await context.ready()
            await context.start()
            self._stack = stack.pop_all()
        return self

    def _attach(self, listener: Listener, context: JMSContext) -> MessageConsumer:
        context.auto_start = False
        consumer = context.create_consumer(listener.destination, listener.selector, **listener.options)
        consumer.message_listener = _listening(listener.handler, context)
        return consumer

    def _note_end(self) -> None:
        self._context = None
        self._consumers.clear()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._consumers:
            consumer.message_listener = None  # all end after the present message, while the first is waited for
        await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """Run beside a web application: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    async def serve(self) -> None:
        """Run until SIGINT, SIGTERM, or `stop()`. Then let the listeners finish their messages, and close.

        A second signal ends the process at once. Only the main thread can call this.
        """
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            async with self:
                await self._stopping.wait()
                self._ignore_signals(loop)
        finally:
            self._ignore_signals(loop)
            self._stopping = None

    def _ignore_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def stop(self) -> None:
        """End `run` or `serve`, when the listeners have finished their present messages."""
        if self._stopping is not None:
            self._stopping.set()

    def run(self) -> None:
        """Run as a program of its own; see `serve`."""
        asyncio.run(self.serve())


def _listening(handler: Handler, context: JMSContext) -> Callable[[Message], Awaitable[None]]:
    """Return the message listener that calls a handler, and sends what it returns as the reply."""
    report = session_of(context).endpoint.report

    async def listen(message: Message) -> None:
        try:
            arguments, reply_to = handler.arguments(message), message.reply_to
        except JMSError as error:  # another delivery would not help
            report(error)
            return
        try:
            result = handler.function(*arguments)
            if isawaitable(result):
                result = await result
            if result is not None and reply_to is not None:
                await context.reply(message, result)
        except (Exception, asyncio.CancelledError) as error:
            handler.note_failure(message, error)
            raise

    return listen
