"""Confirmation of published messages: known subscribers are asked to confirm watermarks in the streams of lanes.

`LaneConfirmation` asks on behalf of a bus. `Confirmation` asks in the background for the PERSISTENT messages of one
connection. One watermark confirms everything published before it, so one round of requests serves many messages. While
a caller waits for an outcome, rounds follow each other at once; otherwise there are a few a second.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Set
from time import time
from typing import TYPE_CHECKING, Protocol

from fjm2.base.errors import ConfigError, NormError
from fjm2.messages.errors import JMSError

from .errors import UnconfirmedError
from .waiting.outages import End, OutageReports, Outages, unconfirmed

if TYPE_CHECKING:
    from .lane import Lane, Lanes

_PAUSE_S = 0.1
"""Pause between rounds that nobody waits for, so that they cost little."""
_RETRY_S = 0.05
"""Pause before receivers that did not confirm are asked again: they may be busy, or still lack much."""
_ROUND_MIN_S = 0.05
"""Shortest time for which nodes are asked, even if theirs is over."""
CLOSING_ROUND_S = 0.25
"""Interval at which a close notes which nodes have confirmed. They count as progress, and are not named as missing."""
_ASK_AGAIN_S = 0.5
"""Time for which a subscriber that did not confirm, and is heard of again, is asked to confirm."""


class Confirmable(Protocol):
    """The part of a bus that `Confirmation` uses."""

    @property
    def outages(self) -> Outages:
        """Subscribers that nobody waits for."""

    def confirmed(self) -> Awaitable[frozenset[int]]:
        """Ask for confirmation of everything published so far, and return the node ids that did not confirm."""


class LaneConfirmation:
    """Asks the subscribers of lanes to confirm what was published."""

    def __init__(
        self,
        lanes: "Lanes",
        subscribers_of: Callable[["Lane"], frozenset[int]],
        ack_timeout_s: float,
        outages: Outages,
    ) -> None:
        self.confirmations = 0
        """Confirmations received, one for each node and round."""
        self.outages = outages
        self.on_confirmed: Callable[[Lane, frozenset[int]], None] = lambda *_: None
        """Called with a lane and the node ids that have confirmed something of it for the first time."""
        self.expired: Set[int] = frozenset()
        """Nodes that fell silent and were forgotten. They did not confirm, unlike those that said goodbye."""
        self._lanes = lanes
        self._subscribers_of = subscribers_of
        self._ack_timeout_s = ack_timeout_s
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None
        """Task that asks nodes again that did not confirm."""

    async def confirmed(self) -> frozenset[int]:
        """Ask the known subscribers of all lanes for confirmation. Return the node ids of those that did not confirm.

        A subscriber has `ack_timeout_s` to answer, not counting time in which it is full. If it does not, nobody waits
        for it again until it confirms: it is among those returned, and in `outages`.
        """
        asked = [(lane, set(self._subscribers_of(lane))) for lane in self._lanes.with_streams]
        await asyncio.gather(*(self._confirm_in_time(lane, nodes) for lane, nodes in asked))
        return frozenset[int]().union(*(nodes for _, nodes in asked))

    async def _confirm_in_time(self, lane: "Lane", nodes: set[int]) -> None:
        """Ask `nodes` until each has confirmed or begun an outage. Remove those that have confirmed from the set."""
        awaited = nodes - self.outages.nodes
        late = nodes - awaited
        if lane.stream is not None and awaited:
            await lane.stream.drain()
        due_at = dict.fromkeys(awaited, self._loop.time() + self._ack_timeout_s)
        while awaited:
            left_s = min(due_at[node] for node in awaited) - self._loop.time()
            await self.ask(lane, awaited, max(left_s, _ROUND_MIN_S))
            now, full = self._loop.time(), lane.session.full_receivers
            for node in list(awaited):
                if node in full:
                    due_at[node] = now + self._ack_timeout_s
                elif now >= due_at[node] or node in self.outages.nodes | lane.session.evicted_receivers | self.expired:
                    self.outages.begin(node)
                    awaited.discard(node)
                    late.add(node)
            if awaited:
                await asyncio.sleep(_RETRY_S)
        nodes &= late

    async def confirm(self, lane: "Lane", nodes: set[int]) -> None:
        """Ask `nodes` for confirmation again and again, until all have confirmed or were given up.

        Nodes that have confirmed are removed from the set, so that the others are known even if the call is cancelled.
        """
        while nodes:
            await self.ask(lane, nodes, CLOSING_ROUND_S)
            if nodes <= lane.session.evicted_receivers | self.expired:
                break
            await asyncio.sleep(_RETRY_S)

    async def ask(self, lane: "Lane", nodes: set[int], timeout_s: float) -> None:
        """Ask `nodes` for some seconds. Those that have confirmed, or left, are removed from the set."""
        before, upto = len(nodes), lane.given_bytes
        outcome = await lane.session.watermark(nodes, timeout_s=timeout_s)
        new = outcome.acked - lane.confirmed_upto.keys()
        lane.confirmed_upto.update(dict.fromkeys(outcome.acked, upto))
        if new:
            self.on_confirmed(lane, frozenset(new))
        nodes &= outcome.failed
        nodes &= self._subscribers_of(lane) | self.expired  # a receiver that said goodbye need not confirm
        self.confirmations += before - len(nodes)

    def tick(self) -> None:
        """End outages of nodes that are gone, and ask those again that were heard of. Call this every second."""
        outages, lanes = self.outages, self._lanes.with_streams
        if not outages.nodes:
            return
        known = frozenset[int]().union(*(self._subscribers_of(lane) for lane in lanes))
        outages.end(outages.nodes - known, End.GONE)
        for lane in lanes:
            for node in lane.session.receivers - lane.session.silent_receivers:
                outages.note_heard(node)
        if self._asking is None and (heard := outages.take_heard(self._loop.time())):
            self._asking = self._loop.create_task(self._ask_again(heard))

    async def _ask_again(self, nodes: set[int]) -> None:
        """Ask nodes for a moment, and end the outages of those that confirm."""
        late = [(lane, nodes & self._subscribers_of(lane)) for lane in self._lanes.with_streams]
        until = self._loop.time() + _ASK_AGAIN_S
        try:
            while True:
                await asyncio.gather(*(self.ask(lane, asked, _ASK_AGAIN_S) for lane, asked in late if asked))
                if self._loop.time() >= until or not any(asked for _, asked in late):
                    break
                await asyncio.sleep(_RETRY_S)
            self.outages.end(nodes.difference(*(asked for _, asked in late)), End.BACK)
        except (ConfigError, NormError):
            pass  # the session was closed, or continues under another node id
        finally:
            self._asking = None

    def close(self) -> None:
        """Stop asking nodes again."""
        if self._asking is not None:
            self._asking.cancel()


class _Failures:
    """Subscribers for which messages fail whatever is confirmed: they discarded some, or died before the end."""

    __slots__ = ("_gone", "_latest", "_nodes", "_upto")

    def __init__(self) -> None:
        self._nodes: set[int] = set()
        self._gone: set[int] = set()
        self._upto = 0
        """Number up to which this may concern messages."""
        self._latest = 0

    def note(self, node_id: int, upto: int) -> None:
        """Note a subscriber. Its notice may concern messages up to a number; 0 if there are none."""
        self._latest = node_id
        if upto:
            self._nodes.add(node_id)
            self._upto = upto

    def note_latest(self, upto: int) -> None:
        """Let the latest notice concern messages up to a number, too."""
        self.note(self._latest, upto)

    def note_gone(self, nodes: Set[int], upto: int) -> None:
        """Note subscribers that died before all of the message with a number was sent."""
        self._gone |= nodes
        self._upto = upto

    def take(self, upto: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return those that discarded messages up to a number, and those that died. They are remembered for later
        messages."""
        found = frozenset(self._nodes), frozenset(self._gone)
        if self._upto <= upto:
            self._nodes.clear()
            self._gone.clear()
        return found


class Confirmation:
    """Outcomes of the PERSISTENT messages of a connection, by the numbers that `Publication` gives them."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_asked_upto",
        "_bus",
        "_coming",
        "_current",
        "_done",
        "_failures",
        "_report",
        "_reports",
        "_task",
        "accepted",
        "discards",
        "is_running",
        "unasked",
    )

    def __init__(self, bus: Confirmable, report: Callable[[JMSError], None]) -> None:
        self.accepted = 0
        """Number of PERSISTENT messages published, where a transaction counts as one. The latest message has this
        number."""
        self.unasked = 0
        """Messages of the coming round whose sender does not wait for the outcome. A failure to confirm them is
        reported."""
        self.is_running = False
        """True while a task asks for confirmations."""
        self.discards = 0
        """Notices of subscribers that discarded messages."""
        self._failures = _Failures()
        self._bus = bus
        self._report = report
        self._reports = OutageReports(bus.outages.names, report)
        bus.outages.add_listener(self._reports.note_end)
        self._done = 0
        """Number of the latest message whose outcome is final."""
        self._asked_upto = 0
        """Number of the latest message that subscribers have been asked to confirm."""
        self._current: asyncio.Future[JMSError | None] | None = None
        """Outcome of the messages that subscribers are asked to confirm now; None if nobody waits for it."""
        self._coming: asyncio.Future[JMSError | None] | None = None
        """Outcome of later messages; None if nobody waits for it."""
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """Number of messages whose outcome is open."""
        return self.accepted - self._done

    def note_discarded(self, node_id: int) -> None:
        """Note that a subscriber discarded messages. What is not final yet fails, even if it is confirmed."""
        self.discards += 1
        self._failures.note(node_id, self.accepted if self.pending else 0)

    def doubt_latest(self) -> None:
        """Let the latest message fail: a notice came after it was begun, and before it was accepted."""
        self._failures.note_latest(self.accepted)

    def fail_latest(self, nodes: Set[int]) -> None:
        """Let the latest message fail for subscribers that died after it was begun, and before it was accepted."""
        self._failures.note_gone(nodes, self.accepted)

    def start(self) -> None:
        """Start a task that asks for confirmations until all accepted messages have an outcome.

        Call this when a message is accepted and `is_running` is False.
        """
        self.is_running = True
        self._task = asyncio.get_running_loop().create_task(self._run())

    def outcome(self) -> asyncio.Future[JMSError | None]:
        """Return a future of the outcome of everything accepted so far: None if all known subscribers have confirmed
        it, otherwise an error.

        Ask for the outcome of a message when it is accepted: later, it may be final already, and is not kept. All who
        ask share the future, so shield it from cancellation.
        """
        loop = asyncio.get_running_loop()
        if self.accepted == self._done:
            final: asyncio.Future[JMSError | None] = loop.create_future()
            final.set_result(None)
            return final
        if self.accepted == self._asked_upto:
            if self._current is None:
                self._current = loop.create_future()
            return self._current
        if self._coming is None:
            self._coming = loop.create_future()
            self._asked.set()
        return self._coming

    async def close(self) -> None:
        """Stop asking for confirmations. Callers that still wait get UnconfirmedError as the outcome."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for waiting in (self._current, self._coming):
            if waiting is not None and not waiting.done():
                waiting.set_result(UnconfirmedError("the connection was closed before it was confirmed"))
        self._current = self._coming = None
        self._bus.outages.remove_listener(self._reports.note_end)
        self._reports.close()

    async def _run(self) -> None:
        try:
            while self._done < self.accepted:
                await self._pause()
                await self._run_round()
        finally:
            self._task = None
            self.is_running = False

    async def _pause(self) -> None:
        if self._coming is None:
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._asked.wait()

    async def _run_round(self) -> None:
        upto, unasked, since = self.accepted, self.unasked, time()
        self.unasked = 0
        self._asked_upto = upto
        self._current, self._coming = self._coming, None
        error: JMSError | None = None
        known = frozenset(self._bus.outages.nodes)
        self._reports.begin_round()
        try:
            missing = await self._bus.confirmed()
            discarders, gone = self._failures.take(upto)
            missing |= gone
            if missing or discarders:
                names = self._bus.outages.names
                error = unconfirmed(missing | discarders, names, known, len(discarders))
                self._reports.note_round(missing, upto - self._done, bool(unasked), since, self._bus.outages.nodes)
                if discarders and unasked:
                    self._report(unconfirmed(discarders, names, discarders=len(discarders)))
        except asyncio.CancelledError:
            # The connection closes in the middle of the round. Its close does not ask nodes again whose outage has
            # begun, so report them here.
            begun = frozenset(self._bus.outages.nodes) - known
            self._reports.note_round(begun, upto - self._done, bool(unasked), since, self._bus.outages.nodes)
            raise
        except Exception as failure:
            error = UnconfirmedError(f"persistent messages could not be confirmed: {failure}")
            error.__cause__ = failure
            if unasked:
                self._report(error)
        self._done = upto
        current, self._current = self._current, None
        if current is not None and not current.done():
            current.set_result(error)
