"""Sessions, each with one order of sending, one order of receiving and one transaction."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self

from fjm2.base.functions import FixedAttributes
from fjm2.base.quantities import counted, shortened
from fjm2.bus.inbox import Inbox, Overflow, settings_with
from fjm2.bus.statistics import SessionStatistics
from fjm2.messages.destination import (
    PATTERN_FLAG,
    QUEUE_FLAG,
    TEMPORARY_FLAG,
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    TopicPattern,
    not_a_destination,
)
from fjm2.messages.errors import (
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    TransactionRolledBackError,
)
from fjm2.messages.message_factory import MessageFactory
from fjm2.messages.object_codec import ObjectCodec
from fjm2.messages.selector import Selector

from .consumer import MessageConsumer
from .dispatcher import ANOTHER_SESSION, Dispatcher
from .endpoint import Endpoint
from .last_values.retaining import Retaining
from .metadata import refuse
from .producer import MessageProducer, check_destination
from .settings import OverflowName, SessionMode, can_be_encoded
from .temporary import QueueInbox

if TYPE_CHECKING:
    from .durable.session import DurableSession


class SessionState(Enum):
    """Lifecycle of a session."""

    OPEN = auto()
    CLOSING = auto()
    """`close` was called. Listeners and asynchronous sends may still finish."""
    CUT_OFF = auto()
    """This process is a forked child, and the session is its parent's. Closing it does nothing."""


NAME_CHARACTERS_MAX: Final = 1024
"""Length of the longest name of a subscription that keepers take."""
MOVES: Final = {
    SessionState.OPEN: {SessionState.CLOSING, SessionState.CUT_OFF},
    SessionState.CLOSING: {SessionState.CUT_OFF},
    SessionState.CUT_OFF: set[SessionState](),
}
"""States that may follow each state."""


def check_topic(topic: object) -> None:
    """Raise InvalidDestinationError unless a topic can have named subscriptions."""
    if isinstance(topic, TopicPattern):
        raise InvalidDestinationError(
            f"{topic!r} is a pattern: durable and shared subscriptions take one topic; create one for each topic, or a "
            "consumer without a name: create_consumer"
        )
    if not isinstance(topic, Topic):
        raise not_a_destination(topic, Topic)
    if isinstance(topic, TemporaryTopic):
        raise InvalidDestinationError(f"{topic} is temporary: expected a Topic, which can have named subscriptions")


def check_has_values(destination: Destination) -> None:
    """Raise InvalidDestinationError unless keepers keep last values of a destination."""
    if destination.kind_flags & ~PATTERN_FLAG:
        raise InvalidDestinationError(f"last_values with {destination}: expected a Topic or a TopicPattern")
    if len(destination.encoded_name) > NAME_CHARACTERS_MAX:
        raise InvalidDestinationError(
            f"last_values with {shortened(str(destination), 60)}: expected a name of at most {NAME_CHARACTERS_MAX} "
            "bytes, which fits into a question to keepers"
        )


def check_name(name: object) -> None:
    """Raise TypeError or ValueError unless a subscription can have a name."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r}: expected the name of the subscription, a string")
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(
            f"name={shortened(repr(name), 60)}: expected the name of the subscription, 1 to {NAME_CHARACTERS_MAX} "
            "characters"
        )
    if not can_be_encoded(name):
        raise ValueError(f"name={shortened(repr(name), 60)}: has a lone surrogate, expected what UTF-8 can encode")


def check_selector(selector: str) -> None:
    """Raise InvalidSelectorError unless the selector of a subscription can be sent to keepers."""
    if not can_be_encoded(selector):
        at = next(at for at, character in enumerate(selector) if not can_be_encoded(character))
        raise InvalidSelectorError("expected characters that UTF-8 can encode, found a lone surrogate", at)


class SessionCore:
    """The inside of a session, which `Session`, `JMSContext` and the blocking API share."""

    def __init__(
        self, endpoint: Endpoint, mode: SessionMode, number: int, on_closed: Callable[["SessionCore"], None]
    ) -> None:
        settings = endpoint.settings
        self.endpoint: Final = endpoint
        self.mode: Final = mode
        self.number: Final = number
        """Number of the session in its connection, from 1."""
        self.outbox: Final = endpoint.new_outbox(mode is SessionMode.SESSION_TRANSACTED)
        self.retaining: Final = Retaining(endpoint, self.transacted)
        self.dispatcher: Final = Dispatcher(mode, settings.codec, settings.redeliveries_max, endpoint.report)
        if endpoint.telemetry is not None:
            self.dispatcher.wrap_listener = endpoint.telemetry.listening
        self._on_closed = on_closed
        self._durable: DurableSession | None = None
        self._is_in_block = False
        """True inside the block of `transaction`."""
        self._state = SessionState.OPEN

    @property
    def is_closing(self) -> bool:
        return self._state is SessionState.CLOSING

    @property
    def is_cut_off(self) -> bool:
        return self._state is SessionState.CUT_OFF

    @property
    def transacted(self) -> bool:
        """True if messages are sent, and acknowledged, only by a commit."""
        return self.mode is SessionMode.SESSION_TRANSACTED

    def serve_threads(self, acknowledge: Callable[[], Awaitable[None]]) -> None:
        """Let threads frame messages, and acknowledge them by this function."""
        self.outbox.let_threads_frame()
        self.dispatcher.opener.acknowledge_hook = acknowledge
        self.dispatcher.has_threads = True

    def check_open(self) -> None:
        """Raise IllegalStateError if the session or its connection is closed, or used in another event loop."""
        self.dispatcher.check_open()
        self.endpoint.check_open()

    def check_usable(self) -> ObjectCodec:
        """Return the codec of object messages. Raise IllegalStateError if the session is closed."""
        self.dispatcher.check_not_closed()
        return self.endpoint.settings.codec

    def check_may_close(self) -> None:
        """Raise IllegalStateError if called in another event loop, or in a callback of this session, because `close`
        would wait for its own caller."""
        if self._state is SessionState.OPEN:
            self.endpoint.check_loop()
        self.dispatcher.check_not_in_listener("close")
        self.outbox.check_not_in_callback("close")

    def check_transacted(self, call: str) -> None:
        """Raise IllegalStateError unless the session can commit and roll back now."""
        self.check_open()
        if not self.transacted:
            raise IllegalStateError(
                f"{call}: the session is not transacted: expected one created with SessionMode.SESSION_TRANSACTED"
            )
        self.dispatcher.check_not_listening(call)

    def statistics(self) -> SessionStatistics:
        """Return the present state of the session."""
        return SessionStatistics(
            consumers=len(self.dispatcher.inboxes),
            messages_unacknowledged=len(self.dispatcher.deliveries),
            messages_uncommitted=self.outbox.uncommitted,
            outcomes_awaited=self.outbox.completions.pending,
        )

    def open_inbox(
        self,
        dest: Destination,
        selector: str | None,
        no_local: bool,
        overflow: Overflow | OverflowName | None,
        messages_max: int | None,
        bytes_max: int | None,
        block_s: float | str | None,
        *,
        last_values: bool = False,
    ) -> Inbox:
        """Subscribe to a destination. Return the inbox for a consumer. Where an argument is None, the factory's setting
        applies."""
        self.check_open()
        checked = check_destination(dest)
        if checked.kind_flags == QUEUE_FLAG:
            refuse("queues", checked)
        if checked.kind_flags & TEMPORARY_FLAG:
            self.endpoint.temporaries.check_own(checked)
        if last_values:
            check_has_values(checked)
        parsed = Selector(selector) if selector else None
        if parsed is not None and parsed.is_empty:
            parsed = None
        queue = self.endpoint.temporaries.queue_of(checked)
        if queue is not None:
            inbox: Inbox = queue.add(parsed)
        else:
            default = self.endpoint.settings.consumer
            settings = settings_with(default, overflow, messages_max, bytes_max, block_s)
            if last_values:
                inbox = self.endpoint.values.subscribe(checked, parsed, no_local, settings, self.number)
            else:
                inbox = self.endpoint.subscriptions.add(checked, parsed, no_local, settings, self.number)
        self.dispatcher.add(inbox)
        return inbox

    async def open_durable_inbox(
        self,
        topic: Topic,
        name: str,
        selector: str | None,
        no_local: bool,
        *,
        is_shared: bool,
        is_durable: bool = True,
    ) -> Inbox:
        """Create a consumer of a named subscription; see `Session.create_durable_consumer`. Return its inbox."""
        self.check_open()
        check_topic(topic)
        check_name(name)
        parsed = Selector(selector or "")
        check_selector(parsed.text)
        if not is_shared and self.endpoint.client_id is None:
            raise IllegalStateError(
                f"{topic}: a durable subscription needs a client id: set connection.client_id, or "
                "ConnectionFactory(client_id=...)"
            )
        from .durable.consumer import Wanted  # only now: programs without durable subscriptions do not need it

        wanted = Wanted(topic, name, "" if parsed.is_empty else parsed.text, no_local, is_shared, is_durable)
        return await (await self.durable_session(str(wanted))).create(wanted, None if parsed.is_empty else parsed)

    async def durable_session(self, subject: str) -> "DurableSession":
        """Return this session's part at the cell. Raise ResourceAllocationError if there is no cell."""
        client = await self.endpoint.durable_client(subject)
        if self._durable is None:
            from .durable.session import DurableSession

            self._durable = DurableSession(self.endpoint, client, self.mode, self.number, self.dispatcher)
            self.dispatcher.decide = self._durable.decide
        return self._durable

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription; see `Session.unsubscribe`."""
        self.check_open()
        check_name(name)
        await (await self.durable_session(f"subscription {name!r}")).unsubscribe(name)

    async def close_inbox(self, inbox: Inbox) -> None:
        """End the subscription of a closed consumer, unless it is durable."""
        if self._durable is not None and self._durable.has(inbox):
            await self._durable.close_consumer(inbox)
        else:
            self._end_subscription(inbox)

    def _end_subscription(self, inbox: Inbox) -> None:
        queue = self.endpoint.temporaries.queue_of(inbox.destination)
        if queue is not None and isinstance(inbox, QueueInbox):
            queue.remove(inbox, self.dispatcher.deliveries.forget(inbox))
        else:
            self.endpoint.subscriptions.remove(inbox)

    async def commit(self) -> None:
        """Commit the transaction; see `Session.commit`."""
        self.check_transacted("commit")
        self.outbox.check_not_in_callback("commit")
        await self.outbox.completions.drained()
        if self._durable is not None and self._durable.has_late():
            self.dispatcher.recover()
            raise TransactionRolledBackError(
                "the transaction was rolled back: the keepers heard nothing of the session for too long, and deliver "
                "its messages again",
                "session_fenced",
            )
        acknowledge = self.dispatcher.begin_commit()
        try:
            confirmed = await self.outbox.commit()
        except TransactionRolledBackError:
            self.dispatcher.recover()
            raise
        acknowledge()
        if self.dispatcher.decide is not None:
            await self.dispatcher.decide()
        if confirmed is not None:
            await self.outbox.completions.confirm(confirmed)

    async def rollback(self) -> None:
        """Roll back the transaction; see `Session.rollback`."""
        self.check_transacted("rollback")
        self.outbox.check_not_in_callback("rollback")
        await self.outbox.completions.drained()
        self.outbox.rollback()
        self.dispatcher.recover()

    def begin_block(self) -> None:
        """Begin the block of `transaction`. Raise IllegalStateError inside another one: the end of the inner block
        would commit half of the outer one."""
        self.check_transacted("transaction")
        if self._is_in_block:
            raise IllegalStateError(
                "transaction: the session is inside such a block already, and has one transaction at a time: end that "
                f"block first, or {ANOTHER_SESSION}"
            )
        self._is_in_block = True

    def end_block(self) -> None:
        """End the block of `transaction`, after its commit or rollback."""
        self._is_in_block = False

    async def recover(self) -> None:
        """Redeliver messages that are not acknowledged; see `Session.recover`."""
        self.check_open()
        if self.transacted:
            raise IllegalStateError("recover: the session is transacted: roll back instead")
        self.dispatcher.check_not_listening("recover")
        self.dispatcher.recover()

    def begin_closing(self) -> None:
        """Deliver nothing more, and make no sender wait. Raise IllegalStateError in a callback of this session."""
        self.check_may_close()
        self.dispatcher.begin_closing()

    async def close(self) -> None:
        """Close the session; see `Session.close`."""
        if self.is_cut_off:
            return
        self.check_may_close()
        if self.is_closing:
            return
        self._move_to(SessionState.CLOSING)
        await self.dispatcher.close()
        await self.outbox.close(self.endpoint.closing())
        if self._durable is not None:
            await self._durable.close(self.endpoint.closing())
        for inbox in list(self.dispatcher.inboxes):
            self._end_subscription(inbox)
        self.dispatcher.inboxes.clear()
        self._on_closed(self)

    def cut_off(self, text: str) -> None:
        """Refuse all calls but `close` from now on with this text; see `ConnectionCore.cut_off`."""
        self._move_to(SessionState.CUT_OFF)
        self.outbox.cut_off(text)
        self.dispatcher.cut_off(text)

    def _move_to(self, state: SessionState) -> None:
        if state not in MOVES[self._state]:
            raise AssertionError(f"{self._state} to {state}")
        self._state = state


class Session(FixedAttributes, MessageFactory):
    """A session, with one order of sending, one order of receiving and one transaction. Leaving `async with session`
    closes it."""

    __slots__ = ("_core",)

    def __init__(self, core: SessionCore) -> None:
        """Use `connection.create_session()` instead."""
        self._core = core

    @property
    def transacted(self) -> bool:
        """True if messages are sent, and acknowledged, only by a commit."""
        return self._core.transacted

    @property
    def acknowledge_mode(self) -> SessionMode:
        """Mode of acknowledging received messages."""
        return self._core.mode

    def __repr__(self) -> str:
        core = self._core
        consumers, uncommitted = len(core.dispatcher.inboxes), core.outbox.uncommitted
        state = (
            counted(consumers, "consumer") if consumers else "",
            f"{counted(uncommitted, 'message')} uncommitted" if uncommitted else "",
            "closed" if core.is_closing else "",
        )
        return (
            f"<Session {self.acknowledge_mode.name} of {core.endpoint.name}"
            f"{''.join(f', {word}' for word in state if word)}>"
        )

    def _check_usable(self) -> ObjectCodec:
        return self._core.check_usable()

    def statistics(self) -> SessionStatistics:
        """Return the present state of the session."""
        return self._core.statistics()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Create a topic that lives as long as the connection. Only this connection can consume from it."""
        self._core.check_open()
        return self._core.endpoint.temporaries.create_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        """Create a queue that lives as long as the connection. Only this connection can consume from it."""
        self._core.check_open()
        return self._core.endpoint.temporaries.create_queue()

    def create_producer(self, dest: Destination | None = None) -> MessageProducer:
        """Create a producer for one destination or, with None, for any."""
        self._core.check_open()
        if dest is not None:
            self._core.endpoint.check_sendable(check_destination(dest))
        return MessageProducer(self._core.outbox, self._core.retaining, dest)

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
        limits = overflow, messages_max, bytes_max, block_s
        inbox = self._core.open_inbox(dest, selector, no_local, *limits, last_values=last_values)
        return self._consumer_of(inbox, no_local)

    async def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """Create a consumer of the shared subscription with a name, and the subscription if there is none.

        Each message goes to one of its consumers, in any process. The subscription ends with its last consumer. A
        client id is not needed; with one, only connections of this client id share. Raise ResourceAllocationError
        without a keeper, and IllegalStateError while the subscription has consumers with another topic or selector.
        """
        inbox = await self._core.open_durable_inbox(topic, name, selector, False, is_shared=True, is_durable=False)
        return self._consumer_of(inbox, False)

    async def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Create a consumer of the durable subscription with a name, and the subscription if there is none.

        The keepers of the bus keep what is sent to the topic until this client id has acknowledged it. Another topic,
        selector or `no_local` than before begins the subscription anew. Raise ResourceAllocationError without a keeper,
        IllegalStateError without a client id or while the subscription has a consumer, and InvalidClientIDError while
        another connection uses the client id.
        """
        inbox = await self._core.open_durable_inbox(topic, name, selector, no_local, is_shared=False)
        return self._consumer_of(inbox, no_local)

    create_durable_subscriber = create_durable_consumer
    """Do the same as `create_durable_consumer`."""

    async def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None
    ) -> MessageConsumer:
        """Create a consumer of the shared durable subscription with a name, and the subscription if there is none.

        Each message goes to one of its consumers, in any process. A client id is not needed; with one, only connections
        of this client id share.
        """
        inbox = await self._core.open_durable_inbox(topic, name, selector, False, is_shared=True)
        return self._consumer_of(inbox, False)

    def _consumer_of(self, inbox: Inbox, no_local: bool) -> MessageConsumer:
        core = self._core
        return MessageConsumer(core.dispatcher, inbox, no_local, core.endpoint.ready_of(inbox), core.close_inbox)

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription. The keepers drop what they have for it.

        Raise InvalidDestinationError if there is none of this name, and IllegalStateError while it has a consumer.
        """
        await self._core.unsubscribe(name)

    def create_browser(self, queue: Queue, selector: str | None = None) -> NoReturn:
        """Raise ResourceAllocationError, because this release does not offer this method."""
        self._core.check_open()
        if not isinstance(queue, Queue):
            raise not_a_destination(queue, Queue)
        if queue.kind_flags & TEMPORARY_FLAG:
            self._core.endpoint.temporaries.check_own(queue)
        Selector(selector or "")
        refuse("queue browsers", queue)

    async def commit(self) -> None:
        """Send the messages of the transaction, acknowledge the messages received in it, and wait for confirmation.

        Raise TransactionRolledBackError if nothing was sent, and UnconfirmedError if the outcome is in doubt.
        """
        await self._core.commit()

    async def rollback(self) -> None:
        """Drop the messages sent in the transaction. Messages received in it are delivered again."""
        await self._core.rollback()

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """`async with session.transaction():` commits, or rolls back if an exception leaves the block.

        Raise IllegalStateError inside another such block of the session.
        """
        return self._transaction()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Self]:
        self._core.begin_block()
        try:
            try:
                yield self
            except BaseException:
                await self.rollback()
                raise
            await self.commit()
        finally:
            self._core.end_block()

    async def recover(self) -> None:
        """Redeliver messages, beginning with the first one that is not acknowledged."""
        await self._core.recover()

    async def close(self) -> None:
        """Close the session. Wait for listeners, receives and asynchronous sends, and roll back. Calling this twice
        does no harm."""
        await self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def core_of(session: Session) -> SessionCore:
    """Return the inside of a session, for other parts of this package."""
    return session._core
