"""Threads and the send queue, as used by one session."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, ParamSpec

from fjm2.base.done import DONE, Done
from fjm2.bus.completions import CompletionListener
from fjm2.bus.inbox import MessageListener
from fjm2.bus.publication import BatchPost, Post
from fjm2.jms.batches.outgoing import posts_of
from fjm2.jms.listener_task import ThreadListener
from fjm2.jms.session import SessionCore
from fjm2.messages.message import Message

from .callback_thread import CallbackThread, ThreadCompletion, run_batch
from .loop_thread import call
from .send_queue import PendingSend, SendQueue, guard_progress

_P = ParamSpec("_P")


class SessionThreads:
    """The part of a session that its producers, consumers and requestors share."""

    def __init__(self, core: SessionCore, queue: SendQueue, name: str) -> None:
        self.core, self.queue = core, queue
        self.listeners = CallbackThread(core.dispatcher, core.endpoint, f"{name}-listeners")
        self.completions = CallbackThread(core.outbox, core.endpoint, f"{name}-completions")
        core.serve_threads(self.acknowledge)

    def call(self, function: Callable[_P, Any], *arguments: _P.args, **options: _P.kwargs) -> Any:
        """Run a coroutine function in the loop after the send queue is empty, and return its result."""
        return call(self._behind(function, *arguments, **options))

    async def close_behind(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call `close` after the send queue is empty. Sends that are blocked delay this only until the deadline of the
        close."""
        if self.core.is_cut_off:
            return
        self.core.begin_closing()
        await self.queue.drained(self.core.endpoint.closing())
        await close()

    async def _behind(self, function: Callable[_P, Any], *arguments: _P.args, **options: _P.kwargs) -> Any:
        await self.queue.drained(nullcontext())
        return await function(*arguments, **options)

    def send(self, post: Post, message: Any, listener: CompletionListener | None) -> Future[None] | None:
        """Queue a message. The caller holds the queue's lock, and passes what is returned to `wait` without it."""
        if listener is not None or self._waits_until_stored(post):
            outcome = self.send_async(post, message, listener, asks_subscribers=listener is not None)
            return outcome if listener is None else None
        sending = self.queue.put_any(self.core.outbox, post)
        return None if sending is None else sending.outcome

    def _waits_until_stored(self, post: Post) -> bool:
        return type(post[2][1]) is bytes and self.core.outbox.waits_until_stored(post[0], post[3])

    def send_many(
        self, post: BatchPost, messages: list[Message] | None, listener: CompletionListener | None
    ) -> Future[None] | None:
        """Queue a batch; one by one, if the listener is to be told of each of the messages. The caller holds the
        queue's lock, and passes what is returned to `wait` without it."""
        if messages is None:
            return self.queue.put_batch(self.core.outbox, post)
        for one, message in zip(posts_of(post), messages or (), strict=False):
            self.send_async(one, message, listener)
        return None

    def wait(self, sending: Future[None] | None) -> float | None:
        """Wait for the end of a send that ends later, as of a file, and for room. Return the seconds waited for room;
        None if there was room."""
        if sending is not None:
            sending.result()
        return self.queue.wait_for_room()

    def send_async(
        self, post: Post, message: Any, listener: CompletionListener | None, *, asks_subscribers: bool = True
    ) -> Future[None]:
        """Queue a message, and return a future of its outcome; see `Outbox.put_async`. The caller holds the queue's
        lock."""
        listening = None if listener is None else ThreadCompletion(self.completions, listener)
        guard_progress(post)
        pending = PendingSend(self.core.outbox, message, listening, asks_subscribers=asks_subscribers)
        self.queue.put(pending.put, post, pending.drop)
        return pending

    def listener_of(self, listener: MessageListener) -> ThreadListener:
        async def run(messages: list[Message], is_interrupted: Callable[[], bool]) -> tuple[int, BaseException | None]:
            called = self.core.dispatcher.wrap_listener(listener)
            return await self.listeners.run(run_batch, called, messages, is_interrupted)

        return ThreadListener(run, listener)

    def acknowledge(self) -> Done:
        call(self._acknowledge())
        return DONE

    async def _acknowledge(self) -> None:
        await self.core.dispatcher.acknowledge()

    def close(self) -> None:
        self.listeners.close()
        self.completions.close()
