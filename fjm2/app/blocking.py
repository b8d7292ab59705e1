"""Applications whose listeners are functions that may block. Each listener runs in a thread of its own."""

import signal
import threading
from contextlib import ExitStack
from inspect import iscoroutinefunction
from types import FrameType, TracebackType
from typing import Self, Unpack

from fjm2.jms import ConnectionOptions, InvalidDestinationError, JMSError, Message, MessageFormatError, MessageListener
from fjm2.jms.blocking import ConnectionFactory, JMSContext
from fjm2.jms.blocking.context import reporter_of

from .application import SIGNALS
from .handler import Handler
from .listeners import AnyApp

__all__ = ["App"]


class App(AnyApp[JMSContext]):
    """Functions that get messages, and start and stop together. Takes the arguments of `ConnectionFactory`.

    Each listener has a session and a thread of its own: it gets one message at a time, in order, while other listeners
    run concurrently.
    """

    def __init__(self, uri: str | None = None, **options: Unpack[ConnectionOptions]) -> None:
        self._factory = ConnectionFactory(uri, **options)
        super().__init__("codec" in options)
        self._stack = ExitStack()
        self._stopping = threading.Event()

    def _check(self, handler: Handler) -> Handler:
        if iscoroutinefunction(handler.function):
            raise TypeError(f"{handler.name} is a coroutine function: expected a function, or fjm2.app.App")
        return handler

    def __enter__(self) -> Self:
        self._check_stopped("start")
        with ExitStack() as stack:
            context = stack.enter_context(self._factory.create_context())
            stack.callback(self._end)
            self._begin(context)
            for listener in self._listeners:
                self._attach(listener, stack.enter_context(context.create_context()))
            context.ready()
            context.start()
            self._stack = stack.pop_all()
        return self

    def _message_listener(self, handler: Handler, context: JMSContext) -> MessageListener:
        report = reporter_of(context)

        def listen(message: Message) -> None:
            try:
                arguments, reply_to = handler.arguments(message), message.reply_to
            except JMSError as error:  # another delivery would not help
                report(error, handler.name)
                return
            try:
                result = handler.function(*arguments)
                if result is not None and reply_to is not None:
                    try:
                        context.reply(message, result)
                    except MessageFormatError as error:
                        report(handler.unsendable(result, error), (handler.name, "result"))
                    except InvalidDestinationError as error:  # who asked is gone: to handle it again would not help
                        report(error, (handler.name, "reply"))
            except BaseException as error:
                handler.note_failure(message, error)
                raise

        return listen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begin_ending()
        self._stack.__exit__(kind, error, trace)

    def run(self) -> None:
        """Run until SIGINT, SIGTERM, or `stop()`. Then let the listeners finish their messages, and close.

        A second signal ends the process at once. Only the main thread can call this.
        """
        self._stopping.clear()
        before = {number: signal.signal(number, self._handle_signal) for number in SIGNALS}
        try:
            with self:
                self._stopping.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        signal.signal(number, signal.SIG_DFL)
        self.stop()

    def stop(self) -> None:
        """End `run`, when the listeners have finished their present messages. Any thread may call this."""
        self._stopping.set()
