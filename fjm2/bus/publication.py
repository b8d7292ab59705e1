"""The path of every message from a producer to the network: `Outbox.send` or `put`, then `Publication.publish`.

A session has an `Outbox`: it frames messages, and keeps those of the open transaction. A connection has a
`Publication`: it numbers PERSISTENT messages for confirmation, and appends every frame to the lane of its priority. A
bus has a `Publisher` for rare tasks: it opens lanes, notes new topics, and waits for room.

With a gate, the `Publication` is a `GatedPublication`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from threading import get_ident
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from fjm2.base.errors import NormError
from fjm2.base.quantities import counted
from fjm2.messages.batches.frame_array import ARRAY_MESSAGES_MAX, FrameArray, FrameSettings
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

from .completions import CompletionListener, Completions, Outcome, Receipt, wait_until_stored
from .confirmation import Confirmation
from .errors import UnconfirmedError
from .files.file_transfer import FileTransfer, run_and_tell
from .publishing.publisher import Publisher
from .waiting.home_loop import HomeLoop
from .waiting.room import HeldRoom, Room

if TYPE_CHECKING:
    from fjm2.messages.batches.property_columns import PropertyColumns


Post: TypeAlias = tuple[Destination, int, Parts, int]
"""A message as it was when `send` was called: destination, priority, frame, flags."""
BatchPost: TypeAlias = tuple[Destination, int, list[FrameArray], int]
"""Messages as they were when `send_many` was called: destination, priority, frames, flags."""
_PENDING_BYTES = TRANSACTION_PART_BYTES + TRANSACTION_SECTION_BYTES
"""Estimated memory of a message of an open transaction besides its frame."""
_LOCAL_MESSAGES_MAX = 64
"""Greatest number of messages that subscriptions of this process get at once, and so the greatest number by which one
exceeds its limit."""


class Publication:
    """Publishes the frames of one connection."""

    is_gated = False
    """True if a gate decides when messages count as sent."""

    def __init__(self, publisher: Publisher, confirmation: Confirmation, transactions: int = 0) -> None:
        """`transactions` have had numbers before."""
        self._publisher = publisher
        self._confirmation = confirmation
        publisher.add_confirmation(confirmation)
        self._lane_of_priority = publisher.lanes.of_priority
        self._room_of_priority = tuple(Room(publisher.wait_for_room, lane) for lane in publisher.lanes.of_priority)
        self._subscribed = publisher.router.by_hash
        self._deliver = publisher.router.publish
        self._deliver_many = publisher.router.publish_many
        self._targets_of = publisher.router.targets.of_destination
        self.transactions = transactions
        """Number of the latest transaction of this connection."""

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
            if receipt is None or not receipt.asks_subscribers:
                confirmation.unasked += 1
            else:
                receipt.confirmed = confirmation.outcome()
            if not confirmation.is_running:
                confirmation.start()
        lane = self._lane_of_priority[priority]
        try:
            is_filled = (lane.stream or self._publisher.open_lane(lane, destination)).append(parts[0], parts[1])
        except NormError as error:
            self._publisher.refuse(error)
        if destination.frame_hash not in lane.topics:
            self._publisher.add_topic(lane, destination)
        if self._subscribed and self._deliver(destination, parts):
            return self._publisher.wait_for_subscription(lane)
        return self._room_of_priority[priority] if is_filled else None

    def messages_max(self, destination: Destination) -> int:
        """Return the greatest number of messages that should be published at once."""
        return ARRAY_MESSAGES_MAX if self._targets_of(destination) is None else _LOCAL_MESSAGES_MAX

    def holds(self, destination: Destination, flags: int) -> bool:  # noqa: ARG002 - those of gates use both
        """Return True if a message with these flags counts as sent only when a gate says so. Any thread may ask."""
        return False

    def cleared(self, destination: Destination, priority: int, flags: int) -> Awaitable[None] | None:  # noqa: ARG002 - of gates
        """Return an awaitable if it is not known yet how such a message is sent. Await it before the first message of a
        transaction: it raises the JMSError that prevents all of them."""
        return None

    def publish_many(
        self,
        destination: Destination,
        priority: int,
        frames: FrameArray,
        flags: int,
        receipt: Receipt | None = None,  # noqa: ARG002 - of gates
    ) -> Awaitable[None] | None:
        """Do the same as `publish` for many messages. A receipt only gets the futures of a gate."""
        if flags & PERSISTENT:
            confirmation = self._confirmation
            confirmation.accepted += len(frames)
            confirmation.unasked += len(frames)
            if not confirmation.is_running:
                confirmation.start()
        lane = self._lane_of_priority[priority]
        try:
            stream = lane.stream or self._publisher.open_lane(lane, destination)
            is_filled = stream.append_many(frames.pieces, frames.size, frames.starts)
        except NormError as error:
            self._publisher.refuse(error)
        if destination.frame_hash not in lane.topics:
            self._publisher.add_topic(lane, destination)
        if self._subscribed and self._deliver_many(destination, frames.frames()):
            return self._publisher.wait_for_subscription(lane)
        return self._publisher.wait_for_room(lane) if is_filled else None

    def new_completions(self, owner: object, timeout_s: float) -> Completions:
        """Return the object that reports the outcomes of a session's asynchronous sends."""
        return Completions(owner, self._publisher.flushed, timeout_s)

    def next_transaction(self) -> int:
        """Return a number for a new transaction of this connection."""
        self.transactions += 1
        return self.transactions

    @property
    def discards(self) -> int:
        """Number of notices of subscribers that discarded messages."""
        return self._confirmation.discards

    def doubt_since(self, discards: int) -> None:
        """Let the latest message fail if there were more notices than this when it was begun."""
        if self._confirmation.discards != discards:
            self._confirmation.doubt_latest()

    def receivers(self, destination: Destination) -> frozenset[int]:
        """Return the nodes of the known subscribers to a destination."""
        return self._publisher.presence.subscriber_nodes(frozenset((destination.frame_hash,)))

    def fail_for_dead(self, receivers: frozenset[int]) -> None:
        """Let the latest message fail for the receivers that have died: they fell silent without a goodbye."""
        dead = receivers & self._publisher.presence.expired
        if dead:
            self._confirmation.fail_latest(dead)

    def accept_transaction(self, discards: int, is_stored: bool) -> "asyncio.Future[JMSError | None] | None":
        """Have a transaction confirmed that was published as a whole. Return the future of that, unless it is stored:
        then failures are reported. `discards` is the number of notices before it was published."""
        self._confirmation.accepted += 1
        self._confirmation.unasked += is_stored
        self.doubt_since(discards)
        if not self._confirmation.is_running:
            self._confirmation.start()
        return None if is_stored else self._confirmation.outcome()


def _too_large_transaction(messages: int, size: int, refused: str) -> JMSError:
    return ResourceAllocationError(
        f"a transaction of {counted(messages, 'message')} and {counted(size, 'byte')} cannot be sent: expected at most "
        f"{TRANSACTION_BYTES_MAX}, headers included; {refused} not part of it: commit the others first"
    )


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
        self._closed_text: str | None = None
        """Text of the error that each send raises; None while the outbox is open."""
        self._confirm_timeout_s = confirm_timeout_s
        self.completions = publication.new_completions(self, confirm_timeout_s)
        """Outcomes of asynchronous sends."""
        self._pending: list[Post] | None = [] if is_transacted else None
        """Messages of the open transaction; None if the session is not transacted."""
        self._pending_bytes = TRANSACTION_BYTES
        """Memory of the open transaction at a receiver."""
        self._frames = 0
        """Messages counted to it."""
        self.use(publication)
        self._writer = writer
        self._write, self._write_body = writer.write, writer.write_body
        self._check_destination = check_destination
        self._home: HomeLoop | None = HomeLoop()
        """Event loop that messages are framed in; None if any thread may frame them."""

    @property
    def frames_bodies(self) -> bool:
        """True if `frame_body` and `frame_bodies` may be used."""
        return self._writer.writes_bodies

    def let_threads_frame(self) -> None:
        """Let any thread frame messages, one at a time. They are still sent in the event loop."""
        self._home = None

    def check_loop(self) -> None:
        """Raise IllegalStateError in another event loop than that of the connection, unless the session is closed."""
        if self._home is not None and not self.is_closed:
            self._home.check()

    @property
    def is_closed(self) -> bool:
        """True if nothing can be sent any more."""
        return self._closed_text is not None

    def use(self, publication: Publication) -> None:
        """Publish through a publication from now on, but for a transaction that is being sent."""
        self._publication, self._publish = publication, publication.publish
        self._is_gated = publication.is_gated

    def frame(
        self, message: object, destination: Destination, flags: int, priority: int, time_to_live: int, delay: int = 0
    ) -> Post:
        """Return the message as a frame to be sent, and set the headers that a send sets. With a delay, the flags have
        DELAYED."""
        if self._closed_text is not None:
            self._check_open()
        home = self._home
        if home is not None and (get_ident() != home.thread or not home.is_running()):
            home.check()
        if destination.kind_flags:
            self._check_destination(destination)
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        if isinstance(message, Message):
            parts = self._write(message, destination, flags, priority, now, expiration, delay)
        else:
            copy = adopt(message, self.codec)
            parts = self._write(copy, destination, flags, priority, now, expiration, delay)
            stamp_foreign(message, copy)
        if self._pending is not None:
            if isinstance(message, FileMessage):
                raise IllegalStateError("a file cannot be part of a transaction: send it in another session")
            self._reserve(parts)
        return destination, priority, parts, flags

    def frame_body(
        self,
        kind: int,
        properties: bytes,
        body: bytes,
        destination: Destination,
        flags: int,
        priority: int,
        time_to_live: int,
    ) -> Post:
        """Return the frame to be sent of a message that has nothing but properties and a body, both encoded already."""
        if self._closed_text is not None:
            self._check_open()
        home = self._home
        if home is not None and (get_ident() != home.thread or not home.is_running()):
            home.check()
        if destination.kind_flags:
            self._check_destination(destination)
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        parts = self._write_body(kind, properties, body, destination, flags, priority, now, expiration)
        if self._pending is not None:
            self._reserve(parts)
        return destination, priority, parts, flags

    def _reserve(self, parts: Parts) -> None:
        """Count a message to the open transaction. Raise ResourceAllocationError if receivers would not hold it."""
        size = self._pending_bytes + _PENDING_BYTES + len(parts[0]) + len(parts[1])
        if size > TRANSACTION_BYTES_MAX:
            raise _too_large_transaction(self._frames + 1, size, "this message is")
        self._pending_bytes = size
        self._frames += 1

    def _reserve_many(self, arrays: list[FrameArray]) -> None:
        """Count the messages of a batch to the open transaction: all of them or, if there are too many, none."""
        count = sum(map(len, arrays))
        size = self._pending_bytes + _PENDING_BYTES * count + sum(frames.size for frames in arrays)
        if size > TRANSACTION_BYTES_MAX:
            raise _too_large_transaction(self._frames + count, size, "these messages are")
        self._pending_bytes = size
        self._frames += count

    def begin_batch(self, destination: Destination, time_to_live: int) -> tuple[int, int]:
        """Return timestamp and expiration of a batch. Raise JMSError if it cannot be sent."""
        self._check_open()
        self.check_loop()
        if destination.kind_flags:
            self._check_destination(destination)
        now = time_ns() // 1_000_000
        return now, now + time_to_live if time_to_live else 0

    def frame_bodies(
        self, settings: FrameSettings, bodies: Sequence[bytes], properties: "PropertyColumns"
    ) -> BatchPost:
        """Return messages with these encoded bodies as frames to be sent."""
        from fjm2.messages.batches.array_writer import write_frames  # only now: it loads numpy

        messages_max = self._publication.messages_max(settings.destination)
        arrays = write_frames(self._writer, settings, bodies, properties, messages_max)
        return self._batch_of(settings, arrays)

    def frame_messages(self, settings: FrameSettings, messages: Iterable[Message]) -> BatchPost:
        """Return messages as frames to be sent, and set the headers that a send sets. What the settings say of kind and
        sections does not count."""
        from fjm2.messages.batches.array_writer import join_frames  # only now: it loads numpy

        number, destination = self._writer.number, settings.destination
        options = settings.flags, settings.priority, settings.timestamp, settings.expiration, settings.delivery_delay
        try:
            parts = [self._write(message, destination, *options) for message in messages]
        except BaseException:
            self._writer.number = number
            raise
        return self._batch_of(settings, join_frames(parts, self._publication.messages_max(destination)))

    def _batch_of(self, settings: FrameSettings, arrays: list[FrameArray]) -> BatchPost:
        if self._pending is not None:
            self._reserve_many(arrays)
        return settings.destination, settings.priority, arrays, settings.flags

    def put_many(self, post: BatchPost, receipt: Receipt | None = None) -> Awaitable[None] | None:
        """Publish a batch, or keep it for the commit. If an awaitable is returned, await it before sending more.

        With a receipt, the caller waits itself until a gate says that the messages are stored.
        """
        self._check_open()
        destination, priority, arrays, flags = post
        if self._pending is not None:
            self._pending += [(destination, priority, parts, flags) for frames in arrays for parts in frames.parts()]
            return None
        if len(arrays) != 1:
            return self._publish_arrays(post, receipt)
        return self._publication.publish_many(destination, priority, arrays[0], flags, receipt)

    async def _publish_arrays(self, post: BatchPost, receipt: Receipt | None) -> None:
        destination, priority, arrays, flags = post
        own = Receipt() if receipt is None else receipt
        for frames in arrays:
            self._check_open()
            waiting = self._publication.publish_many(destination, priority, frames, flags, own)
            if waiting is not None:
                await waiting
        if receipt is None:
            for stored in own.stored or ():
                await wait_until_stored(stored, self._confirm_timeout_s)

    def waits_until_stored(self, destination: Destination, flags: int) -> bool:
        """Return True if a send of such a message ends only when a gate says so. Any thread may ask."""
        return self._is_gated and self._pending is None and self._publication.holds(destination, flags)

    def send(
        self,
        message: Any,
        destination: Destination,
        flags: int,
        priority: int,
        time_to_live: int,
        outcome: Outcome | None = None,
    ) -> Awaitable[None] | None:
        """Frame a message, then publish it or keep it for the commit. If an awaitable is returned, await it before
        sending more. Tell `outcome` how the send ends; without it, failures to confirm are reported."""
        is_open = self._pending is None and self._closed_text is None
        if not is_open or destination.kind_flags or type(message) not in PLAIN_CLASSES:
            post = self.frame(message, destination, flags, priority, time_to_live)
            return self.put(post) if outcome is None else self.put_async(post, None, None, outcome)
        home = self._home
        if home is not None and (get_ident() != home.thread or not home.is_running()):
            home.check()
        now = time_ns() // 1_000_000
        expiration = now + time_to_live if time_to_live else 0
        parts = self._write(message, destination, flags, priority, now, expiration)
        if outcome is None:
            return self._publish(destination, priority, parts, flags)
        if flags & PERSISTENT or self._is_gated:
            return self.put_async((destination, priority, parts, flags), None, None, outcome)
        waiting = self._publish(destination, priority, parts, flags)
        self.completions.add(outcome)
        return waiting

    def put(self, post: Post) -> Awaitable[None] | None:
        """Publish a message, or keep it for the commit. If an awaitable is returned, await it before sending more."""
        if self._closed_text is not None:  # since the message was framed
            self._check_open()
        if self._pending is not None:
            self._pending.append(post)
            return None
        destination, priority, parts, flags = post
        if type(parts[1]) is FileBody:
            return self._transfer(post).run(flags, None)
        return self._publish(destination, priority, parts, flags)

    def _transfer(self, post: Post) -> FileTransfer:
        destination, priority, parts, _ = post
        body = parts[1]
        assert isinstance(body, FileBody)
        return FileTransfer(self._publication, self._check_open, destination, priority, parts, body)

    def _check_open(self) -> None:
        if self._closed_text is not None:
            raise IllegalStateError(self._closed_text)

    def put_async(
        self,
        post: Post,
        message: object,
        listener: CompletionListener | None,
        outcome: Outcome,
        *,
        asks_subscribers: bool = True,
    ) -> Awaitable[None] | None:
        """Publish a message, or keep it for the commit. Tell `outcome` how it ends, and return what `put` returns.

        Unless `asks_subscribers`, it ends as that of `put` does: failures to confirm are reported.
        """
        receipt: Receipt | None = None
        waiting: Awaitable[None] | None = None
        is_plain = not post[3] & PERSISTENT and not self._is_gated and type(post[2][1]) is bytes
        if is_plain and listener is None and self._pending is None:
            waiting = self._publish(*post)
            self.completions.add(outcome)
            return waiting
        if self._pending is not None:
            self._pending.append(post)
        else:
            receipt = self.completions.new_receipt()
            receipt.asks_subscribers = asks_subscribers
            if type(post[2][1]) is FileBody:
                receipt.sent = asyncio.get_running_loop().create_future()
                waiting = run_and_tell(self._transfer(post), post[3], receipt, receipt.sent)
            else:
                waiting = self._publish(*post, receipt)
                if receipt.sent is not None:  # the completions tell of its failure, once
                    waiting = None if receipt.has_room else HeldRoom(receipt.sent)
        self.completions.add_told(receipt, message, outcome, listener)
        return waiting

    def cut_off(self, text: str) -> None:
        """Refuse all sends from now on with this text, and do nothing else."""
        self._closed_text = text

    async def close(self, limit: "contextlib.AbstractAsyncContextManager[None]") -> None:
        """Roll back the open transaction, and wait for asynchronous sends until `limit` raises TimeoutError."""
        self.rollback()
        await self.completions.close(limit)
        self._closed_text = "the session, or its context, is closed: create another one"

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

    async def commit(self) -> "asyncio.Future[JMSError | None] | None":
        """Publish the open transaction. Return the future of its confirmation, or None if no message is PERSISTENT.

        Raise TransactionRolledBackError if nothing was sent, and UnconfirmedError if the outcome is in doubt. If the
        caller is cancelled, everything is sent all the same.
        """
        posts, publication = self._pending or [], self._publication
        self.rollback()
        size, number, discards = len(posts), publication.next_transaction(), publication.discards
        persistent = [(destination, priority) for destination, priority, _, flags in posts if flags & PERSISTENT]
        is_held = False
        receipt = Receipt()
        sent = 0

        def publish() -> Awaitable[None] | None:
            nonlocal sent
            destination, priority, parts, _ = posts[sent]
            sealed = parts if size == 1 else seal(parts, Transaction(number, sent, size))
            waiting = publication.publish(destination, priority, sealed, 0, receipt)
            sent += 1
            return waiting

        try:
            for destination, *_ in posts:
                if destination.kind_flags:
                    self._check_destination(destination)
            for place in persistent:
                waiting = publication.cleared(*place, PERSISTENT)
                if waiting is not None:
                    await waiting
            is_held = all(publication.holds(destination, PERSISTENT) for destination, _ in persistent)
            while sent < size:
                waiting = publish()
                if waiting is not None:
                    await waiting
            for stored in receipt.stored or ():
                await wait_until_stored(stored, self._confirm_timeout_s)
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
        return publication.accept_transaction(discards, is_held) if persistent else None
