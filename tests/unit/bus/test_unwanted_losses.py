"""Losses that no consumer of a process could have wanted are not told as losses."""

import pytest
from routing import SENDER, STREAM, Bench, Subscriber, message

from fjm2.bus.losses.notices import LossEvent, LossNotices
from fjm2.bus.presence import PresenceTable
from fjm2.bus.reports import BusReport
from fjm2.messages.frame import Frame
from fjm2.norm.events import LossReason, ObjectLost, SenderVanished, StreamLost

LOSSES: list[LossEvent] = [
    StreamLost(SENDER, STREAM, 500, 900, LossReason.SQUELCHED),
    ObjectLost(SENDER, 9, (), LossReason.UNSUPPORTED),
    SenderVanished(SENDER, LossReason.SENDER_GONE),
]


class Tap:
    """A tap that wants all frames, as one who records them does."""

    is_full = False

    def take_run(self, sender_id: int, frames: list[Frame]) -> None:
        """Take frames."""


class Watched:
    """A router with these subscribers, and what its losses are reported as."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self.bench = Bench(*subscribers)
        self.reports: list[BusReport] = []
        self.lost: list[tuple[int, int, int]] = []
        self.notices = LossNotices(PresenceTable(), self.reports.append)
        self.notices.router = self.bench.router
        self.notices.on_lost = lambda *numbers: self.lost.append(numbers)

    def lose(self, event: LossEvent) -> int:
        """Return the number of reports of a loss after a message was received."""
        self.bench.take([message("a")])
        self.notices.note(event)
        return len(self.reports)


@pytest.mark.parametrize("event", LOSSES, ids=lambda event: type(event).__name__)
def test_losses_are_told_only_where_somebody_wants_messages(event: LossEvent) -> None:
    assert Watched().lose(event) == 0
    assert Watched(Subscriber()).lose(event) == 1
    recorded = Watched()
    recorded.bench.router.add_tap(Tap())
    assert recorded.lose(event) == 1


def test_a_consumer_that_comes_is_told_of_later_losses_and_one_that_went_of_none() -> None:
    watched, subscriber = Watched(), Subscriber()
    watched.lose(LOSSES[0])
    watched.bench.router.add(subscriber)
    assert watched.lose(LOSSES[0]) == 1
    watched.bench.router.remove(subscriber)
    assert watched.lose(LOSSES[0]) == 1


def test_what_nobody_reads_is_not_told_as_unreadable() -> None:
    for subscribers, count in (((), 0), ((Subscriber(),), 1)):
        watched = Watched(*subscribers)
        watched.bench.take([message("a")])
        watched.bench.take_bytes(b"\xff" * 5_000, (0,))
        watched.bench.take([message("b")])
        watched.notices.tick()
        assert len(watched.reports) == count
