"""Sessions for threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from fjm2.base.functions import FixedAttributes
from fjm2.bus.inbox import Overflow
from fjm2.bus.statistics import SessionStatistics
from fjm2.jms import session as aio_session
from fjm2.jms.settings import OverflowName, SessionMode
from fjm2.messages.destination import Destination, Queue, Topic
from fjm2.messages.message_factory import MessageFactory
from fjm2.messages.object_codec import ObjectCodec

from .closing import Closable
from .connection_threads import ConnectionThreads
from .consumers import MessageConsumer
from .loop_thread import call, run
from .producers import MessageProducer
from .session_threads import SessionThreads
from .temporary import TemporaryQueue, TemporaryTopic


class Session(FixedAttributes, MessageFactory, Closable):
    """A session, with one order of sending, one order of receiving and one transaction. Leaving `with session` closes
    it."""

    __slots__ = ("_inner", "_threads")

    def __init__(self, inner: aio_session.Session, threads: ConnectionThreads) -> None:
        self._inner = inner
        self._threads = threads.add_session(aio_session.core_of(inner))

    def __repr__(self) -> str:
        return repr(self._inner)

    def _check_usable(self) -> ObjectCodec:
        return self._threads.core.check_usable()

    @property
    def transacted(self) -> bool:
        """True if messages are sent, and acknowledged, only by a commit."""
        return self._inner.transacted

    @property
    def acknowledge_mode(self) -> SessionMode:
        """Mode in which received messages are acknowledged."""
        return self._inner.acknowledge_mode

    def statistics(self) -> SessionStatistics:
        """Return the present state of the session."""
        return run(self._inner.statistics)

    def create_temporary_topic(self) -> TemporaryTopic:
        """Create a topic that lives as long as the connection. Only this connection can consume from it."""
        made = run(self._inner.create_temporary_topic)
        return TemporaryTopic(made.name, lambda _: made.delete())

    def create_temporary_queue(self) -> TemporaryQueue:
        """Create a queue that lives as long as the connection. Only this connection can consume from it."""
        made = run(self._inner.create_temporary_queue)
        return TemporaryQueue(made.name, lambda _: made.delete())

    def create_producer(self, dest: Destination | None = None) -> MessageProducer:
        """Create a producer for one destination or, with None, for any."""
        run(self._inner.create_producer, dest)
        return MessageProducer(self._threads, dest)

    def create_consumer(
        self,
        dest: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        overflow: Overflow | OverflowName | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        block_s: float | str | None = None,
        last_values: bool = False,
    ) -> MessageConsumer:
        """Create a consumer with a subscription of its own.

        `overflow`, `messages_max`, `bytes_max` and `block_s` default to those of the factory. With `no_local` the
        consumer gets nothing that its own connection sends.

        With `last_values`, the consumer first gets what keepers have of messages that were sent with `retain`, flagged
        with the property `JMS_FJM2_LastValue`, and then all that is sent. Without a keeper, `ready` and each receive
        raise ResourceAllocationError.
        """
        bounds: dict[str, Any] = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max}
        bounds |= {"block_s": block_s, "last_values": last_values}
        inner = run(self._inner.create_consumer, dest, selector, no_local, **bounds)
        return MessageConsumer(inner, self._threads)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """Create a consumer of the shared subscription with a name, and the subscription if there is none.

        Each message goes to one of its consumers, in any process. The subscription ends with its last consumer. A
        client id is not needed; with one, only connections of this client id share. Raise ResourceAllocationError
        without a keeper, and IllegalStateError while the subscription has consumers with another topic or selector.
        """
        inner = call(self._inner.create_shared_consumer(topic, name, selector))
        return MessageConsumer(inner, self._threads)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Create a consumer of the durable subscription with a name, and the subscription if there is none.

        The keepers of the bus keep what is sent to the topic until this client id has acknowledged it. Another topic,
        selector or `no_local` than before begins the subscription anew. Raise ResourceAllocationError without a keeper,
        IllegalStateError without a client id or while the subscription has a consumer, and InvalidClientIDError while
        another connection uses the client id.
        """
        inner = call(self._inner.create_durable_consumer(topic, name, selector, no_local))
        return MessageConsumer(inner, self._threads)

    create_durable_subscriber = create_durable_consumer
    """Do the same as `create_durable_consumer`."""

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """Create a consumer of the shared durable subscription with a name, and the subscription if there is none.

        Each message goes to one of its consumers, in any process. A client id is not needed; with one, only connections
        of this client id share.
        """
        inner = call(self._inner.create_shared_durable_consumer(topic, name, selector))
        return MessageConsumer(inner, self._threads)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription. The keepers drop what they have for it.

        Raise InvalidDestinationError if there is none of this name, and IllegalStateError while it has a consumer.
        """
        call(self._inner.unsubscribe(name))

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """Raise ResourceAllocationError, because this release does not offer this method."""
        run(self._inner.create_browser, queue, selector)

    def commit(self) -> None:
        """Send the messages of the transaction, acknowledge the messages received in it, and wait for confirmation."""
        self._threads.call(self._inner.commit)

    def rollback(self) -> None:
        """Drop the messages sent in the transaction. Messages received in it are delivered again."""
        self._threads.call(self._inner.rollback)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """`with session.transaction():` commits, or rolls back if an exception leaves the block.

        Raise IllegalStateError inside another such block of the session.
        """
        with TransactionBlock(self):
            yield self

    def recover(self) -> None:
        """Redeliver messages, beginning with the first one that is not acknowledged."""
        call(self._inner.recover())

    def close(self) -> None:
        """Close the session. Wait for listeners, receives and asynchronous sends, and roll back. Calling this twice
        does no harm."""
        call(self._threads.close_behind(self._inner.close))
        self._threads.close()


def threads_of(session: Session) -> SessionThreads:
    """Return the threads of a session, for other parts of this package."""
    return session._threads


class TransactionBlock:
    """The block of a transaction: commits at its end, or rolls back after an exception."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        run(threads_of(self._session).core.begin_block)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        end = self._session.commit if kind is None else self._session.rollback
        try:
            end()
        finally:
            threads_of(self._session).core.end_block()
