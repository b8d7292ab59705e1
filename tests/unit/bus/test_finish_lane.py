"""At the end of a lane, the nodes that did not confirm are named, also those that were forgotten or away meanwhile."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fjm2.bus.closing import CloseDeadline, finish_lane
from fjm2.bus.confirmation import LaneConfirmation
from fjm2.bus.losses.names import PeerNames
from fjm2.bus.statistics import BusStats
from fjm2.bus.waiting.outages import Outages

DESK, OTHER = 7, 8
STILL_S = 0.4


class Subscribers:
    """Two subscribers of a lane. One confirms, and the other is forgotten when it is first waited for."""

    def __init__(self, *, is_dead: bool) -> None:
        self.known = frozenset({DESK, OTHER})
        self.expired: set[int] = set()
        self._is_dead = is_dead

    def of(self, _: object) -> frozenset[int]:
        return self.known

    def forget(self) -> None:
        self.known -= {DESK}
        if self._is_dead:
            self.expired.add(DESK)


@dataclass
class Outcome:
    acked: frozenset[int]
    failed: frozenset[int]


@dataclass
class Session:
    subscribers: Subscribers
    receivers: frozenset[int] = frozenset({DESK, OTHER})
    silent_receivers: frozenset[int] = frozenset()
    awaited_receivers: frozenset[int] = frozenset({DESK})
    evicted_receivers: frozenset[int] = frozenset()

    async def watermark(self, nodes: Iterable[int], *, timeout_s: float) -> Outcome:
        assert timeout_s > 0
        await asyncio.sleep(0.01)
        self.subscribers.forget()
        asked = frozenset(nodes)
        return Outcome(asked & {OTHER}, asked - {OTHER})

    def set_receivers(self, *_: object) -> None:
        pass


@dataclass
class Stream:
    """A stream that ends at once, or never."""

    subscribers: Subscribers
    unsent_bytes: int

    async def close(self) -> None:
        if self.unsent_bytes:
            self.subscribers.forget()
            await asyncio.sleep(30)


@dataclass
class Lane:
    session: Session
    stream: Stream
    given_bytes: int = 1000
    evicted: frozenset[int] = frozenset()
    confirmed_upto: dict[int, int] = field(default_factory=dict)

    @property
    def unsent_bytes(self) -> int:
        return self.stream.unsent_bytes

    def owing(self, nodes: frozenset[int]) -> frozenset[int]:
        return nodes - self.confirmed_upto.keys()


class Bus:
    progress = (0, 0)
    repairs_max = 0
    round_trip_s = 0.0


async def missing_of(*, is_dead: bool, unsent_bytes: int) -> frozenset[int]:
    subscribers = Subscribers(is_dead=is_dead)
    lane: Any = Lane(Session(subscribers), Stream(subscribers, unsent_bytes))
    lanes: Any = None
    confirmation = LaneConfirmation(lanes, subscribers.of, STILL_S, Outages(BusStats(), PeerNames()))
    confirmation.expired = subscribers.expired
    missing, unsent = await finish_lane(lane, confirmation, subscribers.of, CloseDeadline(Bus(), STILL_S))
    assert unsent == unsent_bytes
    return missing


class Known(Subscribers):
    """Two subscribers of a lane that stay known. One confirms."""

    def forget(self) -> None:
        pass


@pytest.mark.parametrize("unsent_bytes", [0, 5000])
def test_who_is_forgotten_during_a_close_is_named_and_who_says_goodbye_is_not(unsent_bytes: int) -> None:
    others = frozenset({OTHER} if unsent_bytes else ())
    assert asyncio.run(missing_of(is_dead=True, unsent_bytes=unsent_bytes)) - others == {DESK}
    assert asyncio.run(missing_of(is_dead=False, unsent_bytes=unsent_bytes)) - others == frozenset()


@pytest.mark.parametrize("is_back", [False, True])
def test_who_was_given_up_is_asked_and_named_if_it_came_back(is_back: bool) -> None:
    async def missing() -> frozenset[int]:
        subscribers, desk = Known(is_dead=False), frozenset({DESK})
        session = Session(subscribers, evicted_receivers=frozenset() if is_back else desk)
        lane: Any = Lane(session, Stream(subscribers, 0), evicted=desk)
        lanes: Any = None
        confirmation = LaneConfirmation(lanes, subscribers.of, STILL_S, Outages(BusStats(), PeerNames()))
        return (await finish_lane(lane, confirmation, subscribers.of, CloseDeadline(Bus(), STILL_S)))[0]

    assert asyncio.run(missing()) == ({DESK} if is_back else set())
