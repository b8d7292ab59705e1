"""Applications for asyncio."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from types import TracebackType
from typing import Self, Unpack

from fjm2.base.event_loop import run
from fjm2.jms import (
    ConnectionFactory,
    ConnectionOptions,
    IllegalStateError,
    InvalidDestinationError,
    JMSContext,
    JMSError,
    Message,
    MessageFormatError,
    MessageListener,
)
from fjm2.jms.context import session_of

from .handler import Handler
from .listeners import AnyApp

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class App(AnyApp[JMSContext]):
    """Functions that get messages, and start and stop together. Takes the arguments of `ConnectionFactory`.

    Each listener has a session of its own: it gets one message at a time, in order, while other listeners run
    concurrently. A function or a coroutine function may be a listener; a function that blocks holds up the event loop,
    and is better off in `fjm2.app.blocking.App`.
    """

    def __init__(self, uri: str | None = None, **options: Unpack[ConnectionOptions]) -> None:
        self._factory = ConnectionFactory(uri, **options)
        super().__init__("codec" in options)
        self._stack = AsyncExitStack()
        self._stopping: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        self._check_stopped("start")
        async with AsyncExitStack() as stack:
            context = await stack.enter_async_context(self._factory.create_context())
            stack.callback(self._end)
            self._begin(context)
            for listener in self._listeners:
                self._attach(listener, await stack.enter_async_context(context.create_context()))
            await context.ready()
            await context.start()
            self._stack = stack.pop_all()
        return self

    def _message_listener(self, handler: Handler, context: JMSContext) -> MessageListener:
        report = session_of(context).endpoint.report

        async def listen(message: Message) -> None:
            try:
                arguments, reply_to = handler.arguments(message), message.reply_to
            except JMSError as error:  # another delivery would not help
                report(error, handler.name)
                return
            try:
                result = handler.function(*arguments)
                if isawaitable(result):
                    result = await result
                if result is not None and reply_to is not None:
                    try:
                        await context.reply(message, result)
                    except MessageFormatError as error:
                        report(handler.unsendable(result, error), (handler.name, "result"))
                    except InvalidDestinationError as error:  # who asked is gone: to handle it again would not help
                        report(error, (handler.name, "reply"))
            except (Exception, asyncio.CancelledError) as error:
                handler.note_failure(message, error)
                raise

        return listen

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begin_ending()
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
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            async with self:
                await self._stopping.wait()
                for number in SIGNALS:
                    loop.remove_signal_handler(number)
                    # asyncio leaves a handler for SIGINT that would cancel the listeners, one traceback each.
                    signal.signal(number, signal.SIG_DFL)
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number] or signal.SIG_DFL)
            self._stopping = None

    def stop(self) -> None:
        """End `run` or `serve`, when the listeners have finished their present messages."""
        if self._stopping is not None:
            self._stopping.set()

    def run(self) -> None:
        """Run as a program of its own; see `serve`.

        Raise IllegalStateError in a program that runs an event loop already.
        """
        if _is_loop_running():
            raise IllegalStateError(
                "run: an event loop is running: call `await app.serve()`, or enter `async with app:`"
            )
        run(self.serve())


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
