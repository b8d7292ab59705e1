"""Outages: times in which a subscriber does not confirm. Only the first wait of an outage takes its full time.

A bus has `Outages`, so that nobody waits again for a subscriber that is known not to confirm. Each connection has
`OutageReports`: the exception listener hears of an outage once, and of its end once, with a summary.
"""

from collections.abc import Callable, Iterable, Set
from enum import Enum
from time import time
from typing import Final, TypeAlias

from fjm2.base.quantities import counted
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.losses.names import PeerName, PeerNames, Remedy, clock_text, listed
from fjm2.bus.statistics import BusStats
from fjm2.messages.errors import JMSError

_PAUSE_MIN_S: Final = 1.0
"""Shortest pause before a subscriber that is heard of, but does not confirm, is asked once more."""
_PAUSE_MAX_S: Final = 5.0
"""Longest such pause. While it is asked, requests to the others wait."""


class End(Enum):
    """End of an outage."""

    BACK = "it confirms again"
    GONE = "this subscriber left, or is not heard of any more"
    CLOSED = "this connection is closed"


EndListener: TypeAlias = Callable[[int, End], None]


class _Down:
    """A subscriber that did not confirm in time."""

    __slots__ = ("ask_at", "is_heard", "pause_s")

    def __init__(self) -> None:
        self.is_heard = False
        """True if it was heard of since it was last asked."""
        self.ask_at = 0.0
        """Time from which on it may be asked again."""
        self.pause_s = _PAUSE_MIN_S
        """Pause after the next request."""


class Outages:
    """Subscribers of a bus that did not confirm in time."""

    def __init__(self, stats: BusStats, names: PeerNames) -> None:
        self.names: Final = names
        """Names of nodes, for people."""
        self._stats = stats
        self._down: dict[int, _Down] = {}
        self._listeners: list[EndListener] = []

    @property
    def nodes(self) -> Set[int]:
        """Node ids of subscribers that nobody waits for."""
        return self._down.keys()

    def add_listener(self, listener: EndListener) -> None:
        """Call `listener` at the end of each outage."""
        self._listeners.append(listener)

    def remove_listener(self, listener: EndListener) -> None:
        """Stop calling `listener`. Calling this twice does no harm."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def begin(self, node_id: int) -> None:
        """Note that a subscriber did not confirm in time."""
        if node_id not in self._down:
            self._stats.outages += 1
            self._down[node_id] = _Down()

    def note_heard(self, node_id: int) -> None:
        """Note that a node has sent something, so that it is worth asking again."""
        down = self._down.get(node_id)
        if down is not None:
            down.is_heard = True

    def take_heard(self, now: float) -> set[int]:
        """Return the nodes to ask again. Each is asked once, and again after a pause if it is heard of again."""
        heard = {node_id for node_id, down in self._down.items() if down.is_heard and now >= down.ask_at}
        for down in map(self._down.__getitem__, heard):
            down.is_heard = False
            down.ask_at = now + down.pause_s
            down.pause_s = min(2 * down.pause_s, _PAUSE_MAX_S)
        return heard

    def end(self, nodes: Iterable[int], end: End) -> None:
        """End the outages of nodes. Those that have none are left out."""
        for node_id in [node_id for node_id in nodes if node_id in self._down]:
            del self._down[node_id]
            for listener in list(self._listeners):
                listener(node_id, end)


class _Outage:
    """An outage as one connection has reported it."""

    __slots__ = ("messages", "name", "since")

    def __init__(self, name: PeerName, since: float) -> None:
        self.name = name
        self.since = since
        """Time when the first confirmation was asked for in vain, in seconds since the epoch."""
        self.messages = 0
        """Number of messages that were not confirmed."""


class OutageReports:
    """Reports the outages of subscribers to one connection's exception listener."""

    def __init__(self, names: PeerNames, report: Callable[[JMSError], None], clock: Callable[[], float] = time) -> None:
        self._names = names
        self._report = report
        self._clock = clock
        self._outages: dict[int, _Outage] = {}
        self._ended: set[int] = set()
        """Nodes whose outage was reported, and ended in the round of requests that is under way."""

    def begin_round(self) -> None:
        """Note that confirmations are asked for. Nodes that are down now count as missing in this round, even if their
        outage ends before it does."""
        self._ended.clear()

    def note_round(
        self, missing: frozenset[int], messages: int, is_reported: bool, since: float, down: Set[int]
    ) -> None:
        """Note the nodes that did not confirm some messages since a time. `down` has those whose outage has not ended.

        If `is_reported`, report the nodes that were not reported before. Otherwise their callers are told.
        """
        reported = self._outages.keys() | (self._ended - down)
        new = missing - reported if is_reported else frozenset[int]()
        for node_id in new & down:
            self._outages[node_id] = _Outage(self._names.of(node_id), since)
        for node_id in missing & self._outages.keys():
            self._outages[node_id].messages += messages
        if new:
            self._report(unconfirmed(new, self._names))

    def note_end(self, node_id: int, end: End) -> None:
        """Note the end of an outage. Report it with a summary, if the outage was reported."""
        outage = self._outages.pop(node_id, None)
        if outage is None:
            return
        self._ended.add(node_id)
        until, count = self._clock(), counted(outage.messages, "persistent message")
        span = f"between {clock_text(outage.since)} and {clock_text(until)}"
        self._report(
            UnconfirmedError(
                Remedy.UNCONFIRMED.after(f"{outage.name} did not confirm {count} {span}: {end.value}"),
                frozenset((node_id,)),
                subscribers=(str(outage.name),),
                messages=outage.messages,
                since=outage.since,
                until=until,
            )
        )

    def close(self) -> None:
        """Report all outages that have not ended, because the connection is closed."""
        for node_id in list(self._outages):
            self.note_end(node_id, End.CLOSED)


def unconfirmed(
    nodes: frozenset[int], names: PeerNames, known: Set[int] = frozenset(), discarders: int = 0
) -> UnconfirmedError:
    """Return the exception for persistent messages that these nodes did not confirm or, some of them, discarded. Nobody
    waited for `known` ones."""
    missing = names.all_of(nodes)
    text = f"{counted(len(nodes), 'subscriber')} did not confirm persistent messages: {listed(missing)}"
    if nodes <= known:
        text += "; messages sent before were not confirmed either, so nobody waits for them until they confirm again"
    if discarders:
        text += f"; {discarders} of them discarded some"
    return UnconfirmedError(Remedy.UNCONFIRMED.after(text), nodes, subscribers=tuple(map(str, missing)))
