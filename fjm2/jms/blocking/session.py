"""Sessions for threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

from fjm2.bus.inbox import Overflow
from fjm2.bus.statistics import SessionStatistics
from fjm2.jms import session as aio_session
from fjm2.jms.settings import SessionMode
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


class Session(MessageFactory, Closable):
    """Made by `connection.create_session()`; leaving `with session` closes it."""

    def __init__(self, inner: aio_session.Session, threads: ConnectionThreads) -> None:
        self._inner = inner
        self._threads = threads.add_session(aio_session.core_of(inner))

    def __repr__(self) -> str:
        return repr(self._inner)

    def _check_usable(self) -> ObjectCodec:
        return self._threads.core.check_usable()

    @property
    def transacted(self) -> bool:
        """Whether what is sent and received waits for a commit."""
        return self._inner.transacted

    @property
    def acknowledge_mode(self) -> SessionMode:
        """Who acknowledges what is received, and when."""
        return self._inner.acknowledge_mode

    def statistics(self) -> SessionStatistics:
        """How it stands."""
        return run(self._inner.statistics)

    def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that lives with the connection, of which only it consumes."""
        made = run(self._inner.create_temporary_topic)
        return TemporaryTopic(made.name, lambda _: made.delete())

    def create_temporary_queue(self) -> TemporaryQueue:
        """Likewise a queue."""
        made = run(self._inner.create_temporary_queue)
        return TemporaryQueue(made.name, lambda _: made.delete())

    def create_producer(self, dest: Destination | None = None) -> MessageProducer:
        """For one destination or, with None, for any."""
        run(self._inner.create_producer, dest)
        return MessageProducer(self._threads, dest)

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
        bounds: dict[str, Any] = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max}
        inner = run(self._inner.create_consumer, dest, selector, no_local, **bounds)
        return MessageConsumer(inner, self._threads)

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        run(self._inner.create_shared_consumer, topic, name, selector)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        run(self._inner.create_durable_consumer, topic, name, selector, no_local)

    create_durable_subscriber = create_durable_consumer
    """ResourceAllocationError: not in this release."""

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        run(self._inner.create_shared_durable_consumer, topic, name, selector)

    def unsubscribe(self, name: str) -> NoReturn:
        """InvalidDestinationError: there are no durable subscriptions in this release."""
        run(self._inner.unsubscribe, name)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """ResourceAllocationError: not in this release."""
        run(self._inner.create_browser, queue, selector)

    def commit(self) -> None:
        """Send what the transaction holds, acknowledge what was received in it, and wait for confirmation."""
        self._threads.call(self._inner.commit)

    def rollback(self) -> None:
        """Forget what the transaction holds; what was received in it is delivered again."""
        self._threads.call(self._inner.rollback)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """`with session.transaction():` commits, or rolls back if an exception leaves the block."""
        run(self._threads.core.check_transacted, "transaction")
        with TransactionEnd(self):
            yield self

    def recover(self) -> None:
        """Deliver again, from the first message on that is not acknowledged."""
        call(self._inner.recover())

    def close(self) -> None:
        """Wait for listeners, receives and asynchronous sends; roll back. Twice does no harm."""
        call(self._threads.close_behind(self._inner.close))
        self._threads.close()


def threads_of(session: Session) -> SessionThreads:
    """Return the threads of a session, for other parts of this package."""
    return session._threads


class TransactionEnd:
    """Commits at the end, or rolls back."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        end = self._session.commit if kind is None else self._session.rollback
        end()
