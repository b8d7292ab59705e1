"""Tests of one lane of an outbox: which message is sent in which ledger, and what is sent again."""

import pytest

from fjm2.base.ledger import Ledger
from fjm2.outbox.lives import Life
from fjm2.outbox.outbox_lane import ASK_AGAIN_S, PAUSE_S, PAUSE_S_MAX, AskFinal, LaneState, OutboxLane, Recovered

PRODUCER = 7


def ledger(epoch: int) -> Ledger:
    return Ledger(PRODUCER, epoch, 0)


class Driven:
    """A lane, and the lives that were written for it."""

    def __init__(self, recovered: Recovered | None = None) -> None:
        self.lane = OutboxLane(PRODUCER, 0, recovered or Recovered())
        self.lives: list[Life] = []
        self.asked: list[AskFinal] = []
        self.now = 0.0

    def settle(self) -> None:
        while (life := self.lane.poll_life()) is not None:
            self.lives.append(life)
            self.lane.handle_life_written(life, self.now)
        while (ask := self.lane.poll_ask()) is not None:
            self.asked.append(ask)

    def send(self) -> list[tuple[int, int, int]]:
        """Send all that may be sent. Return number, epoch and sequence of each message."""
        self.settle()
        sent: list[tuple[int, int, int]] = []
        while (place := self.lane.next_place()) is not None:
            sent.append((place[0], self.lane.ledger.producer_epoch, place[1]))
            assert self.lane.note_sent(1) == place[1]
        return sent


def opened(count: int = 5) -> Driven:
    """Return a lane that has sent its first messages."""
    driven = Driven()
    driven.lane.handle_durable(count)
    driven.lane.handle_cell()
    assert driven.send() == [(number, 1, number) for number in range(1, count + 1)]
    return driven


def test_nothing_is_sent_before_a_cell_is_heard_and_the_life_is_on_disk() -> None:
    driven = Driven()
    driven.lane.handle_durable(1)
    assert driven.send() == []
    driven.lane.handle_cell()
    assert driven.lane.next_place() is None
    assert driven.lane.poll_life() == Life(1, 0, 0, 0)
    assert driven.lane.next_place() is None
    driven.lane.handle_life_written(Life(1, 0, 0, 0), 0.0)
    assert driven.lane.next_place() == (1, 1)


def test_messages_are_given_up_when_they_are_stored() -> None:
    driven = opened()
    driven.lane.handle_stored(ledger(1), 3)
    assert (driven.lane.released, driven.lane.waiting) == (3, 2)
    driven.lane.handle_stored(ledger(1), 2)
    driven.lane.handle_stored(ledger(2), 5)
    assert driven.lane.released == 3
    driven.lane.handle_stored(ledger(1), 1000)  # a forgery: more than was sent
    assert driven.lane.released == 5


def test_what_a_final_set_lacks_is_sent_again_in_order() -> None:
    driven = opened()
    driven.lane.handle_stored(ledger(1), 2)
    driven.lane.handle_lost(ledger(1))
    assert driven.send() == []
    assert driven.asked == [AskFinal(ledger(2), ledger(1))]
    driven.lane.handle_durable(6)
    assert driven.send() == []
    driven.lane.handle_final(ledger(1), 3, driven.now)
    assert driven.send() == [(4, 2, 2), (5, 2, 3), (6, 2, 4)]
    driven.lane.handle_stored(ledger(2), 1)  # the request
    assert driven.lane.released == 3
    driven.lane.handle_stored(ledger(2), 4)
    assert driven.lane.waiting == 0


def test_a_restart_asks_what_keepers_have() -> None:
    life = Life(4, 0, 10, 1)
    driven = Driven(Recovered(10, 15, life))
    driven.lane.handle_cell()
    assert driven.send() == []
    assert driven.asked == [AskFinal(ledger(5), ledger(4))]
    assert driven.lives == [Life(5, 4, 10, 1)]
    driven.lane.handle_final(ledger(4), 4, driven.now)
    assert driven.lane.released == 13
    assert driven.send() == [(14, 5, 2), (15, 5, 3)]


def test_a_restart_in_the_middle_asks_for_the_same_ledger_again() -> None:
    driven = Driven(Recovered(10, 15, Life(5, 4, 10, 1)))
    driven.lane.handle_cell()
    assert driven.send() == []
    assert driven.asked == [AskFinal(ledger(6), ledger(4))]
    driven.lane.handle_final(ledger(5), 3, driven.now)  # it has no messages
    assert driven.lane.released == 10
    driven.lane.handle_final(ledger(4), 1000, driven.now)  # a forgery
    assert driven.lane.released == 15


def test_an_empty_final_set_gives_nothing_up() -> None:
    driven = Driven(Recovered(10, 12, Life(4, 0, 10, 1)))
    driven.lane.handle_cell()
    driven.send()
    driven.lane.handle_final(ledger(4), 0, driven.now)
    assert driven.send() == [(11, 5, 2), (12, 5, 3)]


def test_a_request_that_is_lost_is_repeated_in_another_ledger() -> None:
    driven = opened()
    driven.lane.handle_stored(ledger(1), 1)
    driven.lane.handle_lost(ledger(1))
    driven.send()
    driven.lane.handle_lost(ledger(2))
    driven.send()
    driven.now = ASK_AGAIN_S
    driven.lane.handle_timeout(ASK_AGAIN_S)
    driven.send()
    assert [ask.ended for ask in driven.asked] == [ledger(1)] * 3
    assert [ask.ledger for ask in driven.asked] == [ledger(2), ledger(3), ledger(4)]
    assert driven.lane.poll_timeout() == 2 * ASK_AGAIN_S


def lost(driven: Driven, through: int = 0) -> None:
    """Let the present ledger be lost and closed."""
    ledger = driven.lane.ledger
    driven.lane.handle_lost(ledger)
    driven.settle()
    driven.lane.handle_final(ledger, through, driven.now)


def test_lanes_pause_longer_and_longer_while_nothing_is_stored() -> None:
    driven = opened()
    lost(driven)
    assert len(driven.send()) == 5, "once is no reason"
    pauses = []
    for _ in range(6):
        lost(driven)
        assert driven.send() == []
        pauses.append(driven.lane.poll_timeout() - driven.now)
        driven.lane.handle_timeout(driven.lane.poll_timeout() - 0.001)
        assert driven.send() == []
        driven.now = driven.lane.poll_timeout()
        driven.lane.handle_timeout(driven.now)
        assert [number for number, _, _ in driven.send()] == [1, 2, 3, 4, 5]
    assert pauses == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, 8 * PAUSE_S, PAUSE_S_MAX, PAUSE_S_MAX]
    lost(driven, 2)
    assert [number for number, _, _ in driven.send()] == [3, 4, 5], "something was stored: there is no pause"


def test_another_cell_ends_a_pause() -> None:
    driven = opened()
    lost(driven)
    driven.send()
    lost(driven)
    assert driven.send() == []
    driven.lane.handle_cell()
    assert len(driven.send()) == 5


def test_a_ledger_of_which_all_is_stored_needs_no_final_set() -> None:
    driven = opened()
    assert not driven.lane.rest()
    driven.lane.handle_stored(ledger(1), 5)
    assert driven.lane.rest()
    driven.lane.handle_durable(6)
    assert driven.send() == [(6, 2, 1)]
    assert driven.asked == []
    driven.lane.handle_stored(ledger(2), 1)
    driven.lane.handle_lost(ledger(2))
    driven.lane.handle_durable(7)
    assert driven.send() == [(7, 3, 1)]
    assert driven.asked == []


@pytest.mark.parametrize("is_asking", [False, True])
def test_another_cell_gets_all_that_is_not_stored(is_asking: bool) -> None:
    driven = opened()
    driven.lane.handle_stored(ledger(1), 2)
    if is_asking:
        driven.lane.handle_lost(ledger(1))
        driven.send()
    driven.lane.handle_cell()
    epoch = 3 if is_asking else 2
    assert driven.send() == [(number, epoch, number - 2) for number in (3, 4, 5)]


def test_a_lane_without_messages_writes_nothing() -> None:
    driven = Driven(Recovered(10, 10, Life(4, 0, 10, 1)))
    driven.lane.handle_cell()
    assert driven.send() == []
    assert driven.lives == []
    assert driven.lane.state is LaneState.RESTING


def test_lives_are_read_as_they_were_written() -> None:
    life = Life(5, 4, 1 << 40, 1)
    assert Life.decode(life.encode()) == life
    for data in (b"", life.encode()[:-1], life.encode() + b"\0", Life(5, 5, 1, 1).encode(), Life(5, 4, 1, 2).encode()):
        assert Life.decode(data) is None
