"""Routing of messages from the streams of all senders to the subscriptions of this process.

Every stream has a `FrameReader`. A frame is checked in the buffer it came in: first the hash of its destination, then
name, expiry, and the origin and selector that each subscription asks for. Only wanted frames are copied, once for all
subscriptions. Received bytes never raise an exception: those that make no sense are counted. Messages published by this
process join the same path at `_deliver`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic, perf_counter, time
from typing import Final, Protocol

from fjm2.messages.batches.frame_run import RUN_BYTES_MIN, FrameRun, Frames, find_run
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.frame import (
    FRAME_BYTES_MAX,
    SKIPPED_HEADER,
    Frame,
    MarksBehind,
    Parts,
    is_sent_to,
    is_valid,
    transaction_of,
)
from fjm2.messages.header import (
    CONNECTION_ID,
    DESTINATION_HASH,
    EXPIRATION,
    FILE,
    FLAGS,
    HEADER,
    HEADER_BYTES,
    IN_TRANSACTION,
    KIND,
    NOT_WHOLE,
    Header,
    delivery_time_of,
    is_delayed,
)
from fjm2.norm.events import Event, StreamReceived

from .files.incoming_files import IncomingFiles
from .losses.kinds import Gap, Loss
from .losses.senders import Sender, SenderTable, Stream
from .reports import BusReport
from .routing.targets import Received, ReceivedRun, RunSubscription, Subscription, Targets, TargetTable
from .statistics import BusStats
from .transactions import Transactions

HELD_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
"""Greatest size of incomplete frames in all streams together."""
_TURN_S: Final = 0.001
"""Time for which events are taken before other tasks of the loop get their turn. Listeners get twice as much."""
_POSITION_MASK: Final = 0xFFFFFFFF
"""Mask of the lower 32 bits of a position in a stream. The wire carries no more, so when a sender comes back, positions
can be compared by these alone."""


class RunTap(Protocol):
    """An observer that gets all frames from the network before subscriptions do, such as a recorder.

    It does not get messages of this process; a `Gate` does. While a subscription is full, nothing is taken from the
    network, so taps get nothing either. Losses are reported by `Reporter`.
    """

    @property
    def is_full(self) -> bool:
        """True if the tap can take nothing more for now. Senders wait then, as for a subscription. The owner of the tap
        calls `Router.resume` when it has room again."""

    def take_run(self, sender_id: int, frames: Frames) -> None:
        """Take frames that end in one run of a lane, in order, each exactly once. Must not raise or wait.

        They are of all destinations, with or without a subscriber here. `sender_id` is the node id of the lane. Frames
        are views of a larger buffer that nobody changes: slice what is to be kept. `joined_columns` in
        `fjm2.messages.ledgers.run_columns` reads those of several runs at once.
        """


_Part = tuple[Frame, Sender]


class Router:
    """Delivers messages to the subscriptions that want them."""

    def __init__(
        self,
        node_id: int,
        report: Callable[[BusReport], None],
        *,
        on_resume: Callable[[], None] = lambda: None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
        files: IncomingFiles | None = None,
        clock: Callable[[], float] = monotonic,
        stats: BusStats | None = None,
    ) -> None:
        """Call `on_resume` when the last full subscription has room again. Without `files`, no files are received."""
        self._stats = BusStats() if stats is None else stats
        self.table: Final = SenderTable(frame_bytes_max, time())
        self.transactions: Transactions[_Part] = Transactions(self._release, report, on_drop=self.table.mark_dropped)
        self.files: Final = files
        self.targets: Final = TargetTable(self._stats)
        self.by_hash: Final = self.targets.by_hash
        """Subscriptions by the hash of their destination. Empty if this process subscribes to nothing."""
        self.hand_out = self._route
        """Function called with the frames of each run: `_route`; `_route_slowly` while there are taps or patterns."""
        self._on_resume = on_resume
        self._held_bytes_max = held_bytes_max
        self._clock = clock
        self._own = Sender(node_id)
        """Sender of messages that this process publishes."""
        self._senders = self.table.senders
        self._full: dict[Subscription | RunTap, None] = {}
        """Subscriptions and taps that are full, in the order in which they became full."""
        self.taps: tuple[RunTap, ...] = ()
        """Observers of all frames."""
        self._held: dict[Sender, list[Frame]] = {}
        """Frames behind the last part of a file that is not whole on disk yet, by sender."""
        if files is not None:
            files.on_stored = self._route_held

    @property
    def stats(self) -> BusStats:
        """Counters, which the bus shares."""
        self._stats.frames_received = self.table.frames
        return self._stats

    def set_node_id(self, node_id: int) -> None:
        """Set the node id under which this process publishes messages from now on."""
        self._own.node_id = node_id

    def add(self, subscription: Subscription) -> None:
        """Deliver to a subscription from the next message on."""
        self.targets.add(subscription)
        self._choose_route()
        self.table.join(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription. Calling this twice does no harm."""
        self.targets.remove(subscription)
        self._choose_route()
        self.table.leave(subscription, self._own)
        if self.files is not None:
            self.files.forget(subscription)
        if subscription in self._full:
            self._keep_full(one for one in self._full if one is not subscription)

    def resume(self) -> None:
        """Check again which subscriptions and taps are full."""
        if self._full:
            self._keep_full(one for one in self._full if one.is_full)

    def _keep_full(self, full: Iterable[Subscription | RunTap]) -> None:
        self._full = dict.fromkeys(full)
        if not self.is_blocked:
            self._on_resume()

    @property
    def is_blocked(self) -> bool:
        """True if nothing more should be taken from the network: a subscription or a tap is full, or the disk of files
        is behind."""
        return bool(self._full or self._held) or (self.files is not None and self.files.is_full)

    def add_tap(self, tap: RunTap) -> None:
        """Pass the frames of every run to a tap, from the next run on, before subscriptions get them."""
        self.taps = (*self.taps, tap)
        self._choose_route()

    def remove_tap(self, tap: RunTap) -> None:
        """Stop passing frames to a tap. Calling this twice does no harm."""
        self.taps = tuple(one for one in self.taps if one is not tap)
        self._choose_route()
        if tap in self._full:
            self._keep_full(one for one in self._full if one is not tap)

    def _choose_route(self) -> None:
        """Choose the function for frames, because taps or subscriptions have changed."""
        self.hand_out = self._route_slowly if self.taps or self.targets.has_patterns else self._route

    def receive(self, run: StreamReceived) -> None:
        """Read the next bytes of a stream, and deliver the messages that end in them."""
        sender = self._senders.get(run.sender_id)
        stream = sender.streams.get(run.object_id) if sender is not None else None
        if sender is None or stream is None:
            sender, stream = self.table.begin(run.sender_id, run.object_id, run.start)
            if stream.skip_to is not None:
                self.transactions.note_gap(sender.node_id)
        data, marks, reader = run.data, run.marks, stream.reader
        stream.end = run.start + len(data)
        if stream.skip_to is not None:
            known = (stream.skip_to - run.start) & _POSITION_MASK
            if known > _POSITION_MASK >> 1:
                known = 0  # the run lies behind what was read before
            if known >= len(data):
                return
            if known:
                data, marks = data[known:], (0,)
            stream.skip_to = None
        stream.bytes += len(data)
        held = reader.held_bytes
        may_be_run = held + len(data) >= RUN_BYTES_MIN and not self.targets.has_patterns
        if may_be_run and (self.targets.batched or self.taps):
            frames = self._receive_runs(data, marks, sender, stream)
        else:
            frames = reader.feed(data, marks)
        if frames:
            stream.frames += len(frames)
            self.hand_out(frames, sender)
        if reader.held_bytes != held:
            self.table.held_bytes += reader.held_bytes - held
            if self.table.held_bytes > self._held_bytes_max:
                self._stats.streams_cut += 1
                self.transactions.note_gap(self.table.reset_longest())

    def _receive_runs(self, data: bytes, marks: Sequence[int], sender: Sender, stream: Stream) -> list[Frame]:
        """Deliver the messages that taps, or consumers of batches, get together. Return the frames behind them."""
        frames, data, at, before = stream.reader.split(data, marks)
        if not data:
            return frames
        stream.frames += len(frames)
        if frames:
            self.hand_out(frames, sender)
        is_held = sender in self._held
        while not is_held and at + HEADER_BYTES <= len(data):
            found = self._hand_out_run(data, at, sender, stream.reader.frame_bytes_max)
            if found is None:
                break
            stream.frames += len(found)
            sender.latest = HEADER.unpack_from(data, int(found.starts[-1]))
            at = found.end
        frames = stream.reader.feed(data[at:], MarksBehind(marks, at - before))
        if not is_held:
            return frames
        stream.frames += len(frames)
        self._full.update(_full_after(self.taps, frames, sender.node_id))
        self._held[sender] += frames
        return []

    def _hand_out_run(self, data: bytes, at: int, sender: Sender, frame_bytes_max: int) -> FrameRun | None:
        """Hand out the frames from an index on that are alike, and return them. Return None, and do nothing, if there
        are too few of them, or if somebody gets them one by one."""
        header: Header = HEADER.unpack_from(data, at)
        if not is_valid(header):
            return None
        one: RunSubscription | None = None
        if not self.taps or header[DESTINATION_HASH] in self.by_hash:
            one = self.targets.run_subscription(data, at, header)
            if self.taps or one is None or self.table.may_have_gap(sender, one):
                return None
        found = find_run(data, at, header, frame_bytes_max)
        if found is None:
            return None
        if one is None:
            self._full.update(_full_after(self.taps, found, sender.node_id))
        else:
            one.deliver_run(ReceivedRun(found.to_be_kept(), sender.node_id))
            self._stats.deliveries += len(found)
            if one.is_full:
                self._full[one] = None
        return found

    def note_gap(self, sender_id: int, object_id: int) -> None:
        """Note that bytes of a stream are lost. For each subscription, the next message from the sender will be
        marked."""
        sender = self.table.sender(sender_id)
        stream = sender.streams.get(object_id)
        if stream is not None:
            self.table.reset(stream)
        self.table.mark(sender, Loss.BYTES)
        self.transactions.note_gap(sender_id)
        if self.files is not None:
            self.files.note_gap(sender_id)

    def note_missed(self, sender_id: int) -> None:
        """Note that whole streams of a sender are lost."""
        self.table.mark(self.table.sender(sender_id), Loss.STREAM)
        self.transactions.note_gap(sender_id)

    def end(self, sender_id: int, object_id: int) -> None:
        """Note that a stream has ended."""
        sender = self._senders.get(sender_id)
        if sender is not None and object_id in sender.streams:
            if sender.streams[object_id].reader.held_bytes:
                self.table.mark(sender, Loss.UNREADABLE)
            self.table.end(sender, object_id)

    def forget(self, sender_id: int, has_unread: bool = False) -> bool:
        """Forget a sender that is gone. Return True if it had streams that have not ended (`Loss.SENDER`).

        With `has_unread`, the sender also had a stream of which nothing was read. If the sender comes back, messages
        that were read are not delivered again. If its connection continues as another sender, the first message shows a
        gap.
        """
        self.transactions.note_gone(sender_id)
        if self.files is not None:
            self.files.note_gone(sender_id)
        return self.table.forget(sender_id, has_unread)

    def check(self, is_silent: Callable[[int], bool] = lambda _: False, unheard_s: float = 0.0) -> None:
        """Drop transactions and files that will not become complete, and note who sends what. Call this every second.

        `is_silent` returns True if nothing was heard of a sender for `SILENT_S`. `unheard_s` is the time since the
        last call in which this process did not listen: it says nothing about others.
        """
        now = self._clock()
        incomplete: Transactions[_Part] | IncomingFiles | None
        for incomplete in (self.transactions, self.files):
            if incomplete is None:
                continue
            if unheard_s:
                incomplete.postpone(unheard_s)
            incomplete.expire(now, is_silent)
        self.table.sample(time())

    def publish(self, destination: Destination, parts: Parts) -> bool:
        """Deliver a message of this process to its own subscriptions. Return True if one of these subscriptions is full
        then."""
        if not self.by_hash:
            return False
        head, body = parts
        targets = self.by_hash.get(destination.frame_hash)
        if self.targets.has_patterns and not destination.kind_flags:
            targets = self.targets.of_topic(destination.encoded_name)
        is_part = head[FLAGS] & NOT_WHOLE
        if targets is None and not is_part:
            return False
        buffer = head + body
        frame: Frame = (buffer, 0, len(head), len(buffer), HEADER.unpack_from(head))
        if self._held and self._own in self._held:
            self._held[self._own].append(frame)
            return True
        if is_part:
            if self._take_part(frame, targets, self._own):
                self._held[self._own] = []
                return True
            if self.files is not None and self.files.is_full:
                return True
        elif targets is not None:
            self._deliver(frame, targets, self._own)
        if not self._full or targets is None:
            return False
        return any(one in self._full for target in targets for one in target.subscriptions)

    def publish_many(self, destination: Destination, frames: Iterable[Frame]) -> bool:
        """Do the same as `publish` for messages to one destination, none of which is part of a file or transaction."""
        targets = self.targets.of_destination(destination)
        if targets is None:
            return False
        if self._held and self._own in self._held:
            self._held[self._own] += frames
            return True
        for frame in frames:
            (self._hold if frame[4][FLAGS] & NOT_WHOLE else self._deliver)(frame, targets, self._own)
        return any(one in self._full for target in targets for one in target.subscriptions)

    def _route(self, frames: list[Frame], sender: Sender) -> None:
        wanted = self.by_hash.get
        deliver = self._deliver
        rest = iter(frames)
        for frame in rest:
            header = frame[4]
            targets = wanted(header[DESTINATION_HASH])
            if header[FLAGS] & NOT_WHOLE:
                if self._take_part(frame, targets, sender):
                    self._held[sender] = list(rest)
            elif targets is not None:
                deliver(frame, targets, sender)
        sender.latest = header

    def _route_held(self, sender: Sender | None) -> None:
        """Continue with the frames of a sender that waited for a file, if there are any, and then with all others."""
        if sender is not None:
            frames = self._held.pop(sender, None)
            if frames is None:
                return
            if frames:
                (self._route_by_pattern if self.targets.has_patterns else self._route)(frames, sender)
        if not self.is_blocked:
            self._on_resume()

    def _route_slowly(self, frames: list[Frame], sender: Sender) -> None:
        """Do the same as `_route` if there are taps or patterns."""
        self._full.update(_full_after(self.taps, frames, sender.node_id))
        (self._route_by_pattern if self.targets.has_patterns else self._route)(frames, sender)

    def _route_by_pattern(self, frames: list[Frame], sender: Sender) -> None:
        rest = iter(frames)
        for frame in rest:
            header = frame[4]
            targets = self.targets.of_frame(frame)
            if header[FLAGS] & NOT_WHOLE:
                if self._take_part(frame, targets, sender):
                    self._held[sender] = list(rest)
            elif targets is not None:
                self._deliver(frame, targets, sender)
        sender.latest = header

    def _deliver(self, frame: Frame, targets: Targets, sender: Sender) -> None:
        buffer, start, body, end, header = frame
        expiration = header[EXPIRATION]
        if expiration and expiration <= time() * 1000:
            self._stats.frames_expired += 1
            for one in self.targets.wanting(frame, targets):
                one.miss(header, Loss.EXPIRED)
            return
        for target in targets:
            if is_sent_to(buffer, start, header, target.destination):
                break
        else:
            return
        received = None
        for one in target.subscriptions:
            if one.left_out == header[CONNECTION_ID]:
                continue
            selector = one.selector
            if selector is not None and not self.targets.is_selected(selector, frame, one):
                continue
            if received is None:
                received = Received(buffer[start:body], buffer[body:end], header, sender.node_id, None)
            if sender.gaps is not None and self.table.take_gap(sender, one, header):
                one.deliver(received.behind(Gap.LOST))
            else:
                one.deliver(received)
            self._stats.deliveries += 1
            if one.is_full:
                self._full[one] = None

    def _deliver_late(
        self, head: bytes, body: bytes, header: Header, sender: Sender, subscriptions: Iterable[Subscription]
    ) -> None:
        """Deliver a message with a file that is whole, or one that is due, to those who wanted it when it came."""
        is_expired = 0 < header[EXPIRATION] <= time() * 1000
        self._stats.frames_expired += is_expired
        for one in subscriptions:
            if is_expired:
                one.miss(header, Loss.EXPIRED)
                continue
            has_gap = sender.gaps is not None and self.table.take_gap(sender, one, header)
            one.deliver(Received(head, body, header, sender.node_id, Gap.LOST if has_gap else None))
            self._stats.deliveries += 1
            if one.is_full:
                self._full[one] = None

    def _take_part(self, frame: Frame, targets: Targets | None, sender: Sender) -> bool:
        """Take a part of a file, or hold a message of a transaction. Return True if what follows has to wait.

        A message that no subscription here wants still counts towards the completeness of its transaction.
        """
        buffer, start, body, end, header = frame
        if header[KIND] == FILE:
            if self.files is None:
                return False
            return self.files.take(
                frame, partial(self.targets.wanting, frame, targets or ()), sender, self._deliver_late
            )
        if not header[FLAGS] & IN_TRANSACTION:
            if targets is not None:
                self._hold(frame, targets, sender)
            return False
        if header is SKIPPED_HEADER:
            self.table.mark(sender, Loss.UNREADABLE)
            self.table.uncount_skip()
            return False
        try:
            transaction = transaction_of(buffer, header, start)
        except MessageFormatError:
            self._stats.frames_malformed += 1
            self.table.mark(sender, Loss.UNREADABLE)
            return False
        if transaction is None:
            return False
        connection_id = header[CONNECTION_ID]
        if sender is self._own and transaction.place and not self.transactions.has(connection_id, transaction.number):
            return False  # there was no subscription when it began
        part, size = None, 0
        if targets is not None and any(is_sent_to(buffer, start, header, one.destination) for one in targets):
            size = end - start
            part = (buffer[start:end], 0, body - start, size, header), sender
        self.transactions.add(connection_id, transaction, part, size, sender.node_id, self._clock())
        return False

    def _release(self, part: _Part) -> None:
        """Deliver a message of a transaction that is complete."""
        frame, sender = part
        targets = self.targets.of_frame(frame)
        if targets is not None:
            (self._hold if is_delayed(frame[4]) else self._deliver)(frame, targets, sender)

    def _hold(self, frame: Frame, targets: Targets, sender: Sender) -> None:
        """Hold a delayed message until it is due, for the subscriptions that want it now."""
        buffer, start, body, end, header = frame
        due_ms = delivery_time_of(buffer, header, start)
        if due_ms <= time() * 1000:
            self._deliver(frame, targets, sender)
            return
        subscriptions = self.targets.wanting(frame, targets)
        if not subscriptions:
            return
        head, content = buffer[start:body], buffer[body:end]

        def deliver(one_by_one: Iterable[Subscription]) -> None:
            self._deliver_late(head, content, header, sender, one_by_one)

        if not self.targets.delayed.hold(due_ms, end - start, subscriptions, deliver):
            for one in subscriptions:
                one.miss(header, Loss.OVERFLOW)


def _full_after(taps: Iterable[RunTap], frames: Frames, sender_id: int) -> dict[Subscription | RunTap, None]:
    """Pass frames to taps, and return those that are full then."""
    if isinstance(frames, list):
        frames = [frame for frame in frames if frame[4] is not SKIPPED_HEADER]
    if not len(frames):
        return {}
    for tap in taps:
        tap.take_run(sender_id, frames)
    return dict.fromkeys(tap for tap in taps if tap.is_full)


class TaskLoop(Protocol):
    """The part of an event loop that `Intake` uses."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...
    def call_exception_handler(self, context: dict[str, object], /) -> None: ...


class Intake:
    """Takes events from a session. It passes runs of streams to the router, and all other events to a handler."""

    def __init__(
        self,
        loop: TaskLoop,
        take: Callable[[], Event | None],
        router: Router,
        handle: Callable[[Event], None],
    ) -> None:
        self._loop = loop
        self._take = take
        self._router = router
        self._handle = handle
        self._is_scheduled = False
        """True if more events will be taken in the loop's next turn."""

    def take_run(self, run: StreamReceived) -> bool:
        """Pass a run that came alone to the router at once. Return False if it has to wait."""
        if self._is_scheduled or self._router.is_blocked:
            return False
        try:
            self._router.receive(run)
        except Exception as error:
            self._tell(error)
        return True

    def take_now(self) -> None:
        """Take events now, unless `take_soon` has scheduled that. In that case listeners run first, so that they keep
        up."""
        if not self._is_scheduled:
            self._take_events()

    def take_soon(self) -> None:
        """Take events in the loop's next turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_events)

    def _take_events(self) -> None:
        """Take events until there are no more, a subscription is full, or the turn is over."""
        self._is_scheduled = False
        take, router, receive = self._take, self._router, self._router.receive
        end = perf_counter() + _TURN_S
        try:
            while perf_counter() < end:
                if router.is_blocked:
                    return
                event = take()
                if event is None:
                    return
                if type(event) is StreamReceived:
                    receive(event)
                else:
                    self._handle(event)
        except Exception as error:
            self._tell(error)
        self.take_soon()

    def _tell(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "an event of a bus was not handled", "exception": error})
