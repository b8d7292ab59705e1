"""Sessions: one order of sending, one order of receiving, one transaction."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import NoReturn, Self

from fjm2.bus.inbox import ConsumerSettings, Inbox, Overflow, overflow_of
from fjm2.bus.statistics import SessionStatistics
from fjm2.messages.destination import (
    QUEUE_FLAG,
    TEMPORARY_FLAG,
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError, TransactionRolledBackError
from fjm2.messages.message_factory import MessageFactory
from fjm2.messages.object_codec import ObjectCodec
from fjm2.messages.selector import Selector

from .consumer import MessageConsumer
from .dispatcher import Dispatcher
from .local_queue import QueueInbox
from .outbox import Outbox
from .producer import MessageProducer, check_destination
from .settings import SessionMode
from .temporary import Temporaries
from .unsupported import refuse


class Session(MessageFactory):
    """Made by `connection.create_session()`; leaving `async with session` closes it."""

    def __init__(self, temporaries: Temporaries, mode: SessionMode, forget: Callable[["Session"], None]) -> None:
        self._temporaries = temporaries
        self._endpoint = endpoint = temporaries.endpoint
        self._forget = forget
        settings = endpoint.settings
        self._outbox = Outbox(endpoint, mode is SessionMode.SESSION_TRANSACTED)
        self._dispatcher = Dispatcher(mode, settings.codec, settings.redeliveries_max, endpoint.report)
        if endpoint.telemetry is not None:
            self._dispatcher.around = endpoint.telemetry.listening
        self._is_closing = False

    @property
    def transacted(self) -> bool:
        """Whether what is sent and received waits for a commit."""
        return self.acknowledge_mode is SessionMode.SESSION_TRANSACTED

    @property
    def acknowledge_mode(self) -> SessionMode:
        """Who acknowledges what is received, and when."""
        return self._dispatcher.mode

    def __repr__(self) -> str:
        return (
            f"<Session {self.acknowledge_mode.name}{', closed' if self._is_closing else ''} of {self._endpoint.name}>"
        )

    def _check_open(self) -> None:
        self._dispatcher.check_open()
        self._endpoint.check_open()

    def _check_usable(self) -> ObjectCodec:
        self._dispatcher.check_open()
        return self._endpoint.settings.codec

    def statistics(self) -> SessionStatistics:
        """How it stands."""
        return SessionStatistics(
            consumers=len(self._dispatcher.inboxes),
            messages_unacknowledged=self._dispatcher.unacknowledged,
            messages_uncommitted=self._outbox.uncommitted,
            outcomes_awaited=self._outbox.completions.pending,
        )

    # Destinations.

    def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that lives with the connection, of which only it consumes."""
        self._check_open()
        return self._temporaries.create_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        """Likewise a queue."""
        self._check_open()
        return self._temporaries.create_queue()

    # Producers and consumers.

    def create_producer(self, dest: Destination | None = None) -> MessageProducer:
        """For one destination or, with None, for any."""
        self._check_open()
        if dest is not None:
            self._outbox.check_destination(check_destination(dest))
        return MessageProducer(self._outbox, dest)

    def create_consumer(
        self,
        dest: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        overflow: Overflow | str | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
    ) -> MessageConsumer:
        """A subscription of its own. What it may hold, and what it does when it is full, is the factory's if not given.

        With `no_local` it gets nothing that its own connection sends.
        """
        inbox = self._open_inbox(dest, selector, no_local, overflow, messages_max, bytes_max)
        return MessageConsumer(self._dispatcher, inbox, no_local, self._endpoint.ready, self._close_inbox)

    def _open_inbox(
        self,
        dest: Destination,
        selector: str | None,
        no_local: bool,
        overflow: Overflow | str | None,
        messages_max: int | None,
        bytes_max: int | None,
    ) -> Inbox:
        self._check_open()
        checked = check_destination(dest)
        if checked.kind_flags == QUEUE_FLAG:
            refuse("queues")
        if checked.kind_flags & TEMPORARY_FLAG:
            self._temporaries.check_own(checked)
        parsed = Selector(selector) if selector else None
        if parsed is not None and parsed.is_empty:
            parsed = None
        queue = self._temporaries.queue_of(checked)
        if queue is not None:
            inbox: Inbox = queue.add(parsed)
        else:
            default = self._endpoint.settings.consumer
            settings = ConsumerSettings(
                overflow=default.overflow if overflow is None else overflow_of(overflow),
                messages_max=default.messages_max if messages_max is None else messages_max,
                bytes_max=default.bytes_max if bytes_max is None else bytes_max,
            )
            inbox = self._endpoint.subscribe(checked, parsed, no_local, settings)
        self._dispatcher.add(inbox)
        return inbox

    def _close_inbox(self, inbox: Inbox) -> None:
        queue = self._temporaries.queue_of(inbox.destination)
        if queue is not None and isinstance(inbox, QueueInbox):
            queue.remove(inbox, self._dispatcher.take_unacknowledged(inbox))
        else:
            self._endpoint.unsubscribe(inbox)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        self._check_subscription(topic, name, selector)
        refuse("shared subscriptions")

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,  # noqa: ARG002
    ) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        self._check_subscription(topic, name, selector)
        if self._endpoint.client_id is None:
            raise IllegalStateError("an unshared durable subscription takes a client id")
        refuse("durable subscriptions")

    create_durable_subscriber = create_durable_consumer
    """ResourceAllocationError: not in this release."""

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        self._check_subscription(topic, name, selector)
        refuse("shared durable subscriptions")

    def unsubscribe(self, name: str) -> NoReturn:
        """InvalidDestinationError: there are no durable subscriptions in this release."""
        self._check_open()
        raise InvalidDestinationError(f"there is no durable subscription {name!r}")

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        self._check_open()
        if not isinstance(queue, Queue):
            raise InvalidDestinationError(f"{queue!r} is no queue")
        Selector(selector or "")
        refuse("queue browsers")

    def _check_subscription(self, topic: Topic, name: str, selector: str | None) -> None:
        self._check_open()
        if not isinstance(topic, Topic):
            raise InvalidDestinationError(f"{topic!r} is no topic")
        if isinstance(topic, TemporaryTopic):
            raise InvalidDestinationError(f"{topic} is temporary: it has no subscriptions with names")
        if not name:
            raise ValueError(f"{name!r} is no name of a subscription")
        Selector(selector or "")

    # Transactions and acknowledgement.

    async def commit(self) -> None:
        """Send what the transaction holds, acknowledge what was received in it, and wait for confirmation.

        TransactionRolledBackError if nothing went out; UnconfirmedError, with `in_doubt`, if it may have.
        """
        self._check_transacted("commit")
        self._outbox.check_not_in_callback("commit")
        await self._outbox.completions.drained()
        try:
            number = await self._outbox.commit()
        except TransactionRolledBackError:
            self._dispatcher.recover()
            raise
        self._dispatcher.acknowledge_all()
        if number is not None:
            await self._outbox.confirm(number)

    async def rollback(self) -> None:
        """Forget what the transaction holds; what was received in it is delivered again."""
        self._check_transacted("rollback")
        self._outbox.check_not_in_callback("rollback")
        await self._outbox.completions.drained()
        self._outbox.rollback()
        self._dispatcher.recover()

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """`async with session.transaction():` commits, or rolls back if an exception leaves the block."""
        return self._transaction()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Self]:
        self._check_transacted("transaction")
        try:
            yield self
        except BaseException:
            await self.rollback()
            raise
        await self.commit()

    def _check_transacted(self, call: str) -> None:
        self._check_open()
        if not self.transacted:
            raise IllegalStateError(f"{call} on a session that is not transacted")
        self._dispatcher.check_not_listening(call)

    async def recover(self) -> None:
        """Deliver again, from the first message on that is not acknowledged."""
        self._check_open()
        if self.transacted:
            raise IllegalStateError("recover on a transacted session: roll back instead")
        self._dispatcher.check_not_listening("recover")
        self._dispatcher.recover()

    # Life.

    async def close(self) -> None:
        """Wait for listeners, receives and asynchronous sends; roll back. Twice does no harm."""
        self._check_may_close()
        if self._is_closing:
            return
        self._is_closing = True
        await self._dispatcher.close()
        await self._outbox.close()
        for inbox in list(self._dispatcher.inboxes):
            self._close_inbox(inbox)
        self._dispatcher.inboxes.clear()
        self._forget(self)

    def _check_may_close(self) -> None:
        self._dispatcher.check_not_in_listener("close")
        self._outbox.check_not_in_callback("close")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
