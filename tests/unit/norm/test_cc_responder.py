"""Tests of a receiver's loss events, and of the rate that it reports."""

import math
from random import Random

import pytest

from fjm2.norm.core.congestion import CcResponder, LossHistory, tfrc_rate
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.wire import CcFlag

RTT_S = 0.01


def history(*runs: tuple[int, int]) -> LossHistory:
    """Return the loss history after runs of messages.

    A run is given as its first number and its length. Runs follow each other after two round-trip times.
    """
    made = LossHistory()
    for at, (first, count) in enumerate(runs):
        made.note(first & 0xFFFF, count, first + count - 1 & 0xFFFF, at * 2 * RTT_S, RTT_S)
    return made


@pytest.mark.parametrize("start", [0, 65_500])
@pytest.mark.parametrize("lost", [1, 64, 128, 1000])
def test_a_gap_is_one_loss_event_however_long(start: int, lost: int) -> None:
    """The gap may be long, since a full queue may drop several trains in a row."""
    made = history((start, 100), (start + 100 + lost, 100))
    assert made.fraction == pytest.approx(1 / 101)


def test_losses_within_one_round_trip_are_one_event() -> None:
    made = LossHistory()
    events = [made.note(first, 5, first + 4, 0.001 * at, RTT_S) for at, first in enumerate(range(0, 100, 10))]
    assert events == [False, True, *[False] * 8]


@pytest.mark.parametrize("second", [(50, 100), (99, 1), (100, 10), (40_000, 10)])
def test_late_messages_and_restarted_sequences_are_no_loss(second: tuple[int, int]) -> None:
    assert history((0, 100), second).fraction == 0.0


def test_a_gap_within_a_run_counts() -> None:
    made = LossHistory()
    assert made.note(0, 10, 12, 0.0, RTT_S)
    assert made.fraction > 0


def test_the_first_interval_may_be_raised_and_no_other() -> None:
    made = history((0, 100), (101, 10))
    made.assume(50)
    assert made.fraction == pytest.approx(1 / 101)
    made.assume(5000)
    assert made.fraction == pytest.approx(1 / 5000)
    made.note(200, 1, 200, 1.0, RTT_S)
    before = made.fraction
    made.assume(1e6)
    assert made.fraction == before


def responder() -> CcResponder:
    remote = RemoteSender(1, 1, ("sender", 1), 0.0, 0.0, grtt_s=RTT_S)
    made = CcResponder(2, remote, Random(1), is_suppressible=True)
    made.rtt_s = RTT_S
    return made


def flow(made: CcResponder, first: int, seconds: float, start: float) -> None:
    """Receive 1,000 messages of 1,000 bytes per second, for some seconds."""
    for step in range(int(seconds * 100)):
        made.note_data(first + 10 * step, first + 10 * step + 9, 10, 10_000, start + 0.01 * step)


def test_a_first_loss_lowers_the_rate_to_about_the_received_rate() -> None:
    """The rate does not fall to the low result of the equation for the few messages of a fast start."""
    made = responder()
    made.rtt_s = 0.1
    flow(made, 0, 0.3, 0.0)
    assert made.feedback().flags & CcFlag.START
    flow(made, 305, 0.3, 0.3)
    assert not made.feedback().flags & CcFlag.START
    assert tfrc_rate(1000, 0.1, 1 / 300) < 0.3e6
    assert made.rate_bytes_per_s == pytest.approx(1e6, rel=0.2)


def test_the_requested_rate_is_at_most_twice_the_received_rate() -> None:
    made = responder()
    made.rtt_s = 1e-4
    flow(made, 0, 1.0, 0.0)
    flow(made, 1001, 1.0, 1.0)
    assert tfrc_rate(made.segment_bytes, made.rtt_s, made.loss.fraction) > 1e7
    assert made.rate_bytes_per_s == pytest.approx(2e6, rel=0.05)
    assert made.feedback().flags & CcFlag.LIMIT


def test_commands_fill_the_numbers_between_data() -> None:
    made = responder()
    made.note_data(0, 9, 10, 10_000, 0.0)
    made.note_command(10, 0.1)
    made.note_data(11, 20, 10, 10_000, 0.2)
    assert made.loss.fraction == 0.0
    made.note_command(22, 0.3)
    assert made.loss.fraction > 0.0


def test_without_loss_the_equation_has_no_limit() -> None:
    assert tfrc_rate(1400, RTT_S, 0.0) == math.inf
