"""The path of every message from a producer to the network: `Outbox.send` or `put`, then `Publication.publish`.

A session has an `Outbox`: it frames messages, and keeps those of the open transaction. A connection has a
`Publication`: it numbers PERSISTENT messages for confirmation, and appends every frame to the lane of its priority. A
bus has a `Publisher` for rare tasks: it opens lanes, notes new topics, and waits for room.

A `Gate` may see every frame before the network does, and hold back the moment at which the message counts as sent.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from time import time_ns
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias
from weakref import WeakSet

from fjm2.base.errors import NormError
from fjm2.base.quantities import counted
from fjm2.messages.destination import Destination
from fjm2.messages.errors import (
    IllegalStateError,
    JMSError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from fjm2.messages.files.file_message import FileBody, FileMessage
from fjm2.messages.foreign import adopt, stamp_foreign
from fjm2.messages.frame import (
    TRANSACTION_BYTES,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_PART_BYTES,
    FrameWriter,
    Parts,
    seal,
)
from fjm2.messages.header import PERSISTENT, TRANSACTION_SECTION_BYTES, Transaction
from fjm2.messages.message import PLAIN_CLASSES, Message
from fjm2.messages.object_codec import ObjectCodec

from .completions import CompletionListener, Completions, Receipt, wait_until_stored
from .confirmation import Confirmation
from .errors import UnconfirmedError
from .files.file_transfer import FileTransfer

if TYPE_CHECKING:
    from fjm2.norm import OutgoingStream

    from .lane import Lane, Lanes
    from .router import Router

_FULL_S = 1.0
"""Longest wait of a publisher for a full subscription of its own process, which the publisher itself may have to
empty."""

Post: TypeAlias = tuple[Destination, int, Parts, int]
"""A message as it was when `send` was called: destination, priority, frame, flags."""


class Gate(Protocol):
    """A hook that decides when messages of a connection count as sent.

    It can do something with each message first, such as write it to a journal, or wait until others have stored it.
    """

    def admit(self, destination: Destination, parts: Parts) -> "asyncio.Future[None] | None":
        """Take note of a frame just before the network gets it.

        Called once for each frame, in the order of publication. The frame is final and may be kept, as nobody changes
        it. Return None to let the message count as sent at once. Otherwise return a future, which messages may share:
        `send`, the outcome of an asynchronous send, and `commit` wait for it, and pass on the JMSError that it may
        raise. Raise JMSError to refuse the message: it is then not sent.
        """


class Publisher:
    """The part of publishing that all connections of a bus share."""

    def __init__(
        self,
        lanes: "Lanes",
        router: "Router",
        on_lane_opened: Callable[[], None],
        on_topic_added: Callable[[], None],
    ) -> None:
        self.lanes = lanes
        self.router = router
        self._on_lane_opened = on_lane_opened
        self._on_topic_added = on_topic_added
        self._has_room = asyncio.Event()
        self._confirmations: WeakSet[Confirmation] = WeakSet()

    def add_confirmation(self, confirmation: Confirmation) -> None:
        """Tell the confirmation of a connection what subscribers discard, as long as the connection lives."""
        self._confirmations.add(confirmation)

    def note_discarded(self, node_id: int) -> None:
        """Note that a subscriber discarded messages of this bus."""
        for confirmation in list(self._confirmations):
            confirmation.note_discarded(node_id)

    def open_lane(self, lane: "Lane", destination: Destination) -> "OutgoingStream":
        """Open a lane for its first message. Raise NormError if that is not possible."""
        if not self.lanes.is_open:
            raise NormError("the bus is closed")
        try:
            stream = lane.open_stream()
        except OSError as error:
            raise NormError(str(error)) from error
        lane.topics.add(destination.frame_hash)
        self.lanes.ignore_own()
        self._on_lane_opened()
        return stream

    def add_topic(self, lane: "Lane", destination: Destination) -> None:
        """Note that a lane also sends to `destination`, so that flow control waits for the subscribers to it."""
        if not lane.wants_all:
            lane.topics.add(destination.frame_hash)
            self._on_topic_added()

    def refuse(self, error: NormError) -> NoReturn:
        """Raise the JMSError that says why a message could not be sent."""
        if not self.lanes.is_open:
            raise IllegalStateError("the connection is closed: create another one") from error
        raise ResourceAllocationError(f"cannot send: {error}", linked_exception=error)

    def wait_for_subscription(self, lane: "Lane") -> Awaitable[None]:
        """Wait up to a second until no subscription of this process is full, then until the lane has room."""
        self._has_room.clear()
        return self._wait_for_subscription(lane)

    async def _wait_for_subscription(self, lane: "Lane") -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FULL_S):
                await self._has_room.wait()
        await self.wait_for_room(lane)

    async def wait_for_room(self, lane: "Lane") -> None:
        """Wait until everything appended to a lane is in its send buffer."""
        if lane.stream is not None:
            try:
                await lane.stream.drain()
            except NormError as error:
                self.refuse(error)

    async def flushed(self) -> None:
        """Wait until everything published so far is in the send buffers of the lanes."""
        for lane in self.lanes.with_streams:
            await self.wait_for_room(lane)

    def resume(self) -> None:
        """Wake publishers that wait for a subscription of this process."""
        self._has_room.set()


class Publication:
    """Publishes the frames of one connection."""

    def __init__(self, publisher: Publisher, confirmation: Confirmation) -> None:
        self._publisher = publisher
        self._confirmation = confirmation
        publisher.add_confirmation(confirmation)
        self._lane_of_priority = publisher.lanes.of_priority
        self._subscribed = publisher.router.by_hash
        self._deliver = publisher.router.publish
        self._transactions = 0

    def publish(
        self, destination: Destination, priority: int, parts: Parts, flags: int = 0, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Send a frame to all subscribers; those of this process get it at once. Every send comes through this method.

        If the flags say PERSISTENT, the message gets the next number of `Confirmation`. If there is no room, return an
        awaitable: await it before sending more. With a receipt, the caller waits for the outcome itself. Without a
        receipt, failures to confirm are reported.
        """
        if flags & PERSISTENT:
            confirmation = self._confirmation
            confirmation.accepted += 1
            if receipt is None:
                confirmation.unasked += 1
            else:
                receipt.number = confirmation.accepted
            if not confirmation.is_running:
                confirmation.start()
        lane = self._lane_of_priority[priority]
        try:
            is_filled = (lane.stream or self._publisher.open_lane(lane, destination)).append(*parts)
        except NormError as error:
            self._publisher.refuse(error)
        if destination.frame_hash not in lane.topics:
            self._publisher.add_topic(lane, destination)
        if self._subscribed and self._deliver(destination, parts):
            return self._publisher.wait_for_subscription(lane)
        return self._publisher.wait_for_room(lane) if is_filled else None

    def new_completions(self, owner: object, timeout_s: float) -> Completions:
        """Return the object that reports the outcomes of a session's asynchronous sends."""
        return Completions(owner, self._confirmation, self._publisher.flushed, timeout_s)

    def next_transaction(self) -> int:
        """Return a number for a new transaction of this connection."""
        self._transactions += 1
        return self._transactions

    @property
    def discards(self) -> int:
        """Number of notices of subscribers that discarded messages."""
        return self._confirmation.discards

    def doubt_since(self, discards: int) -> None:
        """Let the latest message fail if there were more notices than this when it was begun."""
        if self._confirmation.discards != discards:
            self._confirmation.doubt_latest()

    def accept_transaction(self, discards: int) -> int:
        """Return the number by which `Confirmation` knows a transaction that was published as a whole.

        `discards` is the number of notices before it was published.
        """
        self._confirmation.accepted += 1
        self.doubt_since(discards)
        if not self._confirmation.is_running:
            self._confirmation.start()
        return self._confirmation.accepted


class GatedPublication(Publication):
    """Publishes the frames of one connection after a gate has seen them."""

    def __init__(self, publisher: Publisher, confirmation: Confirmation, gate: Gate) -> None:
        super().__init__(publisher, confirmation)
        self._admit = gate.admit

    def publish(
        self, destination: Destination, priority: int, parts: Parts, flags: int = 0, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Pass the frame to the gate, then publish it. Without a receipt, the returned awaitable also waits for the
        gate's future."""
        stored = self._admit(destination, parts)
        waiting = super().publish(destination, priority, parts, flags, receipt)
        if stored is None:
            return waiting
        if receipt is None:
            return _wait_for_both(waiting, stored)
        receipt.stored.append(stored)
        return waiting


async def _wait_for_both(waiting: Awaitable[None] | None, stored: "asyncio.Future[None]") -> None:
    if waiting is not None:
        await waiting
    await wait_until_stored(stored)


async def _run(transfer: FileTransfer, flags: int, receipt: Receipt, sent: "asyncio.Future[JMSError | None]") -> None:
    """Send a file whose outcome is awaited elsewhere, too."""
    error: JMSError | None = None
    try:
        await transfer.run(flags, receipt)
    except JMSError as failure:
        error = failure
        raise
    except BaseException as failure:
        error = JMSError(f"the file was not sent as a whole: {failure!r}")
        raise
    finally:
        if not sent.done():
            sent.set_result(error)


class Outbox:
    """The sending half of a session."""

    def __init__(
        self,
        publication: Publication,
        writer: FrameWriter,
        codec: ObjectCodec,
        check_destination: Callable[[Destination], None],
        confirm_timeout_s: float,
        is_transacted: bool,
    ) -> None:
        """`check_destination` is called for each queue and temporary destination. It raises JMSError if nothing can be
        sent there."""
        self.codec = codec
        """Codec that turns objects into message bodies."""
        self.is_closed = False
        self.completions = publication.new_completions(self, confirm_timeout_s)
        """Outcomes of asynchronous sends."""
        self._pending: list[Post] | None = [] if is_transacted else None
        """Messages of the open transaction; None if the session is not transacted."""
        self._pending_bytes = TRANSACTION_BYTES
        """Memory of the open transaction at a receiver."""
        self._frames = 0
        """Messages counted to it."""
        self._publication = publication
        self._publish = publication.publish
        self._write = writer.write
        self._check_destination = check_destination

    def frame(self, message: object, destination: Destination, flags: int, priority: int, time_to_live: int) -> Post:
        """Return the message as a frame to be sent, and set the headers that a send sets."""
        self._check_open()
        if destination.kind_flags:
            self._check_destination(destination)
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        if isinstance(message, Message):
            parts = self._write(message, destination, flags, priority, now, expiration)
        else:
            copy = adopt(message, self.codec)
            parts = self._write(copy, destination, flags, priority, now, expiration)
            stamp_foreign(message, copy)
        if self._pending is not None:
            if isinstance(message, FileMessage):
                raise IllegalStateError("a file cannot be part of a transaction: send it in another session")
            self._reserve(parts)
        return destination, priority, parts, flags

    def _reserve(self, parts: Parts) -> None:
        """Count a message to the open transaction. Raise ResourceAllocationError if receivers would not hold it."""
        size = self._pending_bytes + TRANSACTION_PART_BYTES + len(parts[0]) + TRANSACTION_SECTION_BYTES + len(parts[1])
        if size > TRANSACTION_BYTES_MAX:
            raise ResourceAllocationError(
                f"a transaction of {counted(self._frames + 1, 'message')} and {counted(size, 'byte')} cannot be sent: "
                f"expected at most {TRANSACTION_BYTES_MAX}, headers included; this message is not part of it: "
                "commit the others first"
            )
        self._pending_bytes = size
        self._frames += 1

    def send(
        self, message: Any, destination: Destination, flags: int, priority: int, time_to_live: int
    ) -> Awaitable[None] | None:
        """Frame a message, then publish it or keep it for the commit. If an awaitable is returned, await it before
        sending more."""
        if self._pending is not None or self.is_closed or destination.kind_flags or type(message) not in PLAIN_CLASSES:
            return self.put(self.frame(message, destination, flags, priority, time_to_live))
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        parts = self._write(message, destination, flags, priority, now, expiration)
        return self._publish(destination, priority, parts, flags)

    def put(self, post: Post) -> Awaitable[None] | None:
        """Publish a message, or keep it for the commit. If an awaitable is returned, await it before sending more."""
        if self.is_closed:  # since the message was framed
            self._check_open()
        if self._pending is not None:
            self._pending.append(post)
            return None
        if type(post[2][1]) is FileBody:
            return self._transfer(post).run(post[3], None)
        return self._publish(*post)

    def _transfer(self, post: Post) -> FileTransfer:
        destination, priority, parts, _ = post
        body = parts[1]
        assert isinstance(body, FileBody)
        return FileTransfer(self._publication, self._check_open, destination, priority, parts, body)

    def _check_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("the session is closed: create another one")

    def put_async(
        self, post: Post, message: object, listener: CompletionListener | None
    ) -> tuple["asyncio.Future[None]", Awaitable[None] | None]:
        """Publish a message, or keep it for the commit. Return a future of its outcome, and what `put` returns."""
        receipt: Receipt | None = None
        waiting: Awaitable[None] | None = None
        if self._pending is not None:
            self._pending.append(post)
        else:
            receipt = Receipt()
            if type(post[2][1]) is FileBody:
                receipt.sent = asyncio.get_running_loop().create_future()
                waiting = _run(self._transfer(post), post[3], receipt, receipt.sent)
            else:
                waiting = self._publish(*post, receipt)
        return self.completions.add(receipt, message, listener), waiting

    async def close(self, limit: "contextlib.AbstractAsyncContextManager[None]") -> None:
        """Roll back the open transaction, and wait for asynchronous sends until `limit` raises TimeoutError."""
        self.rollback()
        await self.completions.close(limit)
        self.is_closed = True

    def check_not_in_callback(self, call: str) -> None:
        """Raise IllegalStateError if called in a completion listener of this session, because `call` would wait for
        itself."""
        if self.completions.is_current():
            raise IllegalStateError(
                f"{call} in a completion listener of the same session would wait for itself: call it in another task"
            )

    @property
    def uncommitted(self) -> int:
        """Number of messages in the open transaction."""
        return len(self._pending or ())

    def rollback(self) -> None:
        """Drop the messages of the open transaction."""
        if self._pending is not None:
            self._pending, self._pending_bytes, self._frames = [], TRANSACTION_BYTES, 0

    async def commit(self) -> int | None:
        """Publish the open transaction. Return its number in `Confirmation`, or None if no message is PERSISTENT.

        Raise TransactionRolledBackError if nothing was sent, and UnconfirmedError if the outcome is in doubt. If the
        caller is cancelled, everything is sent all the same.
        """
        posts = self._pending or []
        self.rollback()
        size, number, discards = len(posts), self._publication.next_transaction(), self._publication.discards
        receipt = Receipt()
        sent = 0

        def publish() -> Awaitable[None] | None:
            nonlocal sent
            destination, priority, parts, _ = posts[sent]
            sealed = parts if size == 1 else seal(parts, Transaction(number, sent, size))
            waiting = self._publish(destination, priority, sealed, 0, receipt)
            sent += 1
            return waiting

        try:
            for destination, *_ in posts:
                if destination.kind_flags:
                    self._check_destination(destination)
            while sent < size:
                waiting = publish()
                if waiting is not None:
                    await waiting
            for stored in receipt.stored:
                await wait_until_stored(stored)
        except asyncio.CancelledError:
            # Send the rest. Otherwise receivers would wait for it, and hold back the next transactions.
            while sent < size:
                waiting = publish()
                if isinstance(waiting, Coroutine):
                    waiting.close()
            raise
        except Exception as failure:
            if not sent:
                reason = f"the transaction was rolled back: {failure}"
                raise TransactionRolledBackError(reason, linked_exception=failure) from failure
            raise UnconfirmedError(
                f"the transaction is in doubt, and some subscribers may have its messages: {failure}"
            ) from failure
        if not any(flags & PERSISTENT for *_, flags in posts):
            return None
        return self._publication.accept_transaction(discards)
