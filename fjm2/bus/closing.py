"""Closing of a bus: the time limit of a close, and the end of a lane's stream with its confirmation."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from .confirmation import CLOSING_ROUND_S

if TYPE_CHECKING:
    from fjm2.norm import SenderConfig

    from .confirmation import LaneConfirmation
    from .lane import Lane, Lanes

_CHECK_INTERVAL_S = 0.05
"""Interval at which a waiting close checks for progress: short compared with any sensible time limit."""
_SENT_INTERVAL_S = 0.005
"""Interval at which a close checks if everything is sent: most closes find nothing left."""
_ROUND_TRIPS: Final = 6.0
"""Round-trip times without progress after which a close gives up at the earliest: a loss and the loss of its repair are
seen and mended within them."""
_STILL_MAX_S: Final = 10.0
"""Longest time for which round trips make a close wait: anybody may claim to be far away."""
_WRITING_SHARE, _CONFIRMING_SHARE = 0.7, 0.9
"""Shares of a close's time limit. After the first, the sender leaves behind the receivers that it still waits for.
After the second, the close stops asking for confirmations."""


class Progress(Protocol):
    """Progress of a bus that is being closed."""

    @property
    def progress(self) -> tuple[int, int]:
        """A pair of counts: segments sent plus confirmations received, and repairs sent. Any receiver may request
        repairs, so they count up to `repairs_max` only."""

    @property
    def repairs_max(self) -> int:
        """Greatest number of repairs that the data still in the send buffers may need."""

    @property
    def round_trip_s(self) -> float:
        """Longest time in which an answer to this node comes, as measured."""


class LanesProgress:
    """Progress of the lanes of a bus."""

    def __init__(self, lanes: "Lanes", confirmation: "LaneConfirmation", sender: "SenderConfig") -> None:
        self._lanes = lanes
        self._confirmation = confirmation
        self._sender = sender

    @property
    def progress(self) -> tuple[int, int]:
        stats = [lane.session.stats for lane in self._lanes.with_streams]
        repairs = sum(each.repair_segments_sent + each.parity_segments_sent for each in stats)
        return sum(each.segments_sent for each in stats) + self._confirmation.confirmations, repairs

    @property
    def repairs_max(self) -> int:
        return len(self._lanes.with_streams) * (self._sender.stream_bytes // self._sender.segment_bytes + 1)

    @property
    def round_trip_s(self) -> float:
        return max((lane.session.grtt_s for lane in self._lanes.with_streams), default=0.0)


class CloseDeadline:
    """A deadline that moves on while there is progress, up to a total time limit."""

    def __init__(self, bus: Progress, still_s: float, timeout_s: float | None = None) -> None:
        """Expire after `still_s` without progress, or after some round trips if that is longer; after `timeout_s` in
        any case."""
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._still_s = still_s
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._began = self._moved_at = self._checked_at = self._loop.time()
        self._steps, self._repairs = bus.progress
        self._repairs_max = self._repairs + bus.repairs_max

    def expire(self) -> None:
        """Make the deadline expire at once."""
        self._timeout_s = 0.0

    async def complete(self, steps: Coroutine[Any, Any, None]) -> None:
        """Wait for the last steps of a close. If the caller is cancelled, let the deadline expire, and wait all the
        same: half a close would keep sockets, directories and threads. A second cancellation ends only the wait."""
        task = asyncio.ensure_future(steps)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self.expire()
            await asyncio.wait([task])
            raise

    def expires_at(self, share: float = 1.0) -> float:
        """Return the time at which the deadline expires if there is no further progress, by the loop's clock.

        With a `share` below 1, return an earlier time, which leaves the rest for the steps that follow.
        """
        now = self._loop.time()
        # Time in which nobody checked does not count: there may have been progress.
        self._moved_at += max(now - self._checked_at - 2 * _CHECK_INTERVAL_S, 0.0)
        self._checked_at = now
        steps, repairs = self._bus.progress
        repairs = min(repairs, self._repairs_max)
        if (steps, repairs) != (self._steps, self._repairs):
            self._steps, self._repairs, self._moved_at = steps, repairs, now
        still_s = max(self._still_s, min(_ROUND_TRIPS * self._bus.round_trip_s, _STILL_MAX_S))
        left_s = (1.0 - share) * min(still_s, self._timeout_s)
        return min(self._moved_at + share * still_s, self._began + self._timeout_s - left_s)

    @contextlib.asynccontextmanager
    async def wait(self, share: float = 1.0) -> AsyncIterator[None]:
        """Run the body of a `with` statement, and raise TimeoutError in it when the deadline, or `share` of it,
        expires."""
        async with asyncio.timeout_at(self.expires_at(share)) as limit:
            checking = self._loop.create_task(self._check(limit, share))
            try:
                yield
            finally:
                checking.cancel()

    async def _check(self, limit: asyncio.Timeout, share: float) -> None:
        while not limit.expired():
            limit.reschedule(self.expires_at(share))
            await asyncio.sleep(_CHECK_INTERVAL_S)


def close_timeout_after(kind: type[BaseException] | None, still_s: float) -> float | None:
    """Return the total time limit of a close that follows an exception, or None for no limit.

    Only Ctrl-C and cancellation limit the close, because they tell the program to end.
    """
    return None if kind is None or issubclass(kind, Exception) else still_s


async def finish_lane(
    lane: "Lane",
    confirmation: "LaneConfirmation",
    subscribers_of: Callable[["Lane"], frozenset[int]],
    deadline: CloseDeadline,
) -> tuple[frozenset[int], int]:
    """End a lane's stream, and ask its subscribers to confirm it.

    Return the nodes that did not confirm, and the number of bytes not sent. Nodes that had confirmed all messages
    before are told of the end, and need not confirm it.
    """
    session, known = lane.session, subscribers_of(lane)
    suspects: frozenset[int] = frozenset()
    suspects_until = deadline.expires_at(_CONFIRMING_SHARE)
    try:
        with contextlib.suppress(TimeoutError):
            async with deadline.wait(_WRITING_SHARE):
                await _sent(lane)
        if lane.unsent_bytes:
            # The receivers that the stream waits for may be dead, or full. Leave them behind: the others get the rest.
            suspects, suspects_until = session.awaited_receivers, deadline.expires_at(_CONFIRMING_SHARE)
            session.set_receivers(session.receivers - suspects, suspects)
        async with deadline.wait(_CONFIRMING_SHARE):
            await _sent(lane)
    except TimeoutError:
        return lane.owing(subscribers_of(lane) | known & confirmation.expired), lane.unsent_bytes
    suspects |= session.silent_receivers
    away = lane.evicted & session.evicted_receivers  # without those that came back
    nodes = subscribers_of(lane) - away - confirmation.outages.nodes
    owing = lane.owing(nodes)
    missing, suspected = set(owing - suspects), set(owing & suspects)
    with contextlib.suppress(TimeoutError):
        async with deadline.wait(_CONFIRMING_SHARE):
            if not nodes:
                await session.flushed()
            if reachable := set(nodes - suspects):
                await confirmation.ask(lane, reachable, CLOSING_ROUND_S)
            missing &= lane.owing(nodes)
            await confirmation.confirm(lane, missing)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(suspects_until):
            await confirmation.confirm(lane, suspected)
    return (subscribers_of(lane) & (missing | suspected)) | lane.owing(known & confirmation.expired), 0


async def _sent(lane: "Lane") -> None:
    """End a lane's stream, and wait until all of it has been sent for the first time.

    What lies in the stream's buffer may be kept back: flow control waits for receivers.
    """
    assert lane.stream is not None
    await lane.stream.close()
    while lane.unsent_bytes:  # noqa: ASYNC110 - nobody else wants an event for each segment
        await asyncio.sleep(_SENT_INTERVAL_S)
