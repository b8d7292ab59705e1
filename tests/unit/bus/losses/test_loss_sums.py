"""Lost bytes are told once a second at most for each sender, and none is left out of the sums."""

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fjm2.bus.losses.names import PeerName
from fjm2.bus.reports import BytesLost, LossDetails, LossSums
from fjm2.jms import Topic
from fjm2.norm.events import LossReason

SENDERS = (1, 2, 3)


class Call:
    """A call that a clock makes later."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at, self.callback = at, callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The clock and timers of an event loop, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[Call] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Call:
        self.calls.append(Call(self.now + delay, callback))
        return self.calls[-1]

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [call for call in self.calls if call.at <= end]:
            call = min(due, key=lambda one: one.at)
            self.calls.remove(call)
            self.now = max(self.now, call.at)
            if not call.is_cancelled:
                call.callback()
        self.now = end


class Listening:
    """Sums, and the times at which they were told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[tuple[float, BytesLost]] = []
        self.sums = LossSums(lambda report: self.told.append((self.clock.now, report)), self.clock)

    def lose(self, messages: int | None, sender: int = 1, reason: LossReason = LossReason.SQUELCHED) -> None:
        name = PeerName(sender, ("desk",), "10.0.0.13")
        now = self.clock.now
        details = LossDetails(name, (Topic("news"),), messages, since=now - 1, until=now)
        self.sums.note(BytesLost(sender, 0, round(1000 * now), round(1000 * now) + 10, reason, details))


def test_the_first_gap_is_told_at_once_and_those_of_a_second_together() -> None:
    listening = Listening()
    for _ in range(50):
        listening.lose(7)
        listening.clock.advance(0.01)
    assert [report.gaps for _, report in listening.told] == [1]
    listening.clock.advance(5.0)
    (_, first), (at, rest) = listening.told
    assert (first.details.messages, rest.details.messages, rest.gaps) == (7, 49 * 7, 49)
    assert 101.0 <= at < 101.1
    assert rest.details.since == pytest.approx(99.01)
    assert rest.details.until == pytest.approx(100.49)
    assert re.match(
        r"about 343 messages of 'desk' at 10\.0\.0\.13 got lost .*\(it sends to topic://news\), in 49 gaps: ", str(rest)
    )
    assert "gaps" not in str(first)


def test_an_unknown_number_makes_the_sum_unknown() -> None:
    listening = Listening()
    for messages in (1, 5, None, 5):
        listening.lose(messages)
    listening.clock.advance(2.0)
    assert [(report.details.messages, report.gaps) for _, report in listening.told] == [(1, 1), (None, 3)]


def test_what_waits_is_told_when_the_listener_goes() -> None:
    listening = Listening()
    for _ in range(3):
        listening.lose(1)
    listening.sums.tell_waiting()
    assert [report.gaps for _, report in listening.told] == [1, 2]
    listening.clock.advance(5.0)
    assert len(listening.told) == 2


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1.5), st.sampled_from(SENDERS), st.sampled_from((LossReason.SQUELCHED, LossReason.OVERRUN))
        ),
        max_size=60,
    )
)
@example([(0.0, 2, LossReason.SQUELCHED)] * 2 + [(pause, 1, LossReason.SQUELCHED) for pause in (0.0078125, 0.0)])
def test_no_gap_is_left_out_and_none_is_told_too_soon(losses: list[tuple[float, int, LossReason]]) -> None:
    listening = Listening()
    for pause, sender, reason in losses:
        listening.clock.advance(pause)
        listening.lose(3, sender, reason)
    listening.clock.advance(2.0)
    assert sum(report.gaps for _, report in listening.told) == len(losses)
    assert sum(report.details.messages or 0 for _, report in listening.told) == 3 * len(losses)
    times: dict[tuple[int, LossReason], float] = {}
    for at, report in listening.told:
        key = report.sender_id, report.reason
        assert at - times.get(key, 0.0) >= 1.0 - 1e-9
        times[key] = at


def test_senders_that_anyone_can_invent_take_little_memory() -> None:
    listening = Listening()
    for sender in range(10_000):
        for _ in range(2):
            listening.lose(1, sender)
        listening.clock.advance(0.001)
    assert max(len(vars(listening.sums)["_waiting"]), len(vars(listening.sums)["_told_at"])) <= 2_000
