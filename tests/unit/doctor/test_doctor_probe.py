"""Tests of the listener's answers to probes.

The listener answers only hosts that have a cookie, with no more bytes than the question had, and not too often.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fjm2.doctor.probe import PROBE_BYTES_MIN, Answerer, Kind, Probe, Way
from fjm2.doctor.prober import Series, climb, tries_for

HOST = "10.1.2.3"
DOOR = 5741
SESSION = b"sessions"

PROBES = st.builds(
    Probe,
    kind=st.sampled_from(Kind),
    way=st.integers(0, 255),
    session=st.binary(min_size=8, max_size=8),
    cookie=st.binary(min_size=8, max_size=8),
    number=st.integers(0, (1 << 32) - 1),
    listener=st.integers(0, (1 << 32) - 1),
    sent_at_ns=st.integers(0, (1 << 64) - 1),
    clock_ns=st.integers(0, (1 << 64) - 1),
    by_multicast=st.integers(0, (1 << 32) - 1),
    by_unicast=st.integers(0, (1 << 32) - 1),
    unicast_port=st.integers(0, (1 << 16) - 1),
)


@given(PROBES, st.integers(0, 1500))
def test_probes_survive_encoding(probe: Probe, size: int) -> None:
    datagram = probe.encode(size)
    assert len(datagram) == max(size, PROBE_BYTES_MIN)
    assert Probe.decode(datagram) == probe


@given(st.binary() | st.binary(max_size=80).map(lambda tail: b"FJM2 probe" + tail))
def test_any_datagram_is_decoded_or_rejected(datagram: bytes) -> None:
    answer = Answerer(DOOR).answer(datagram, HOST, True, 0, 0.0)
    assert answer is None or len(answer) <= len(datagram)


def challenged(answerer: Answerer, host: str = HOST, session: bytes = SESSION, now: float = 0.0) -> Probe:
    """Ask the listener for a cookie. Return a ping with this cookie."""
    answer = answerer.answer(Probe(kind=Kind.HELLO, session=session).encode(), host, True, 0, now)
    assert answer is not None
    challenge = Probe.decode(answer)
    assert challenge is not None
    assert (challenge.kind, challenge.unicast_port) == (Kind.CHALLENGE, DOOR)
    return Probe(kind=Kind.PING, session=session, cookie=challenge.cookie, listener=challenge.listener, number=7)


def test_a_pong_carries_the_listeners_counts() -> None:
    answerer = Answerer(DOOR)
    ping = challenged(answerer)
    answerer.answer(ping.encode(), HOST, True, 0, 1.0)
    answer = answerer.answer(replace(ping, sent_at_ns=5, number=8).encode(900), HOST, False, 17, 1.0)
    assert answer is not None
    assert len(answer) == 900
    pong = Probe.decode(answer)
    assert pong is not None
    assert (pong.kind, pong.number, pong.sent_at_ns, pong.clock_ns) == (Kind.PONG, 8, 5, 17)
    assert (pong.by_multicast, pong.by_unicast) == (1, 1)
    short = answerer.answer(replace(ping, way=Way.SHORT).encode(900), HOST, False, 17, 1.0)
    assert short is not None
    assert len(short) == PROBE_BYTES_MIN


def test_only_pings_with_a_valid_cookie_are_answered() -> None:
    answerer = Answerer(DOOR)
    ping = challenged(answerer)
    assert answerer.answer(ping.encode(), HOST, True, 0, 1.0) is not None
    assert answerer.answer(ping.encode(), "10.9.9.9", True, 0, 1.0) is None  # from a forged address
    assert answerer.answer(replace(ping, session=b"anothers").encode(), HOST, True, 0, 1.0) is None
    assert answerer.answer(replace(ping, cookie=bytes(8)).encode(), HOST, True, 0, 1.0) is None
    assert answerer.answer(replace(ping, listener=ping.listener ^ 1).encode(), HOST, True, 0, 1.0) is None
    assert Answerer(DOOR).answer(ping.encode(), HOST, True, 0, 1.0) is None
    assert answerer.refused == 3  # pings for another listener do not count


@given(st.lists(st.tuples(PROBES, st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.booleans()), max_size=60))
def test_no_answer_is_larger_than_its_question(made: list[tuple[Probe, str, bool]]) -> None:
    answerer = Answerer(DOOR)
    ping = challenged(answerer, "10.0.0.1", now=0.0)
    for number, (probe, host, is_ours) in enumerate(made):
        sent = replace(ping, way=probe.way, number=number) if is_ours else probe
        datagram = sent.encode(PROBE_BYTES_MIN + probe.number % 1400)
        answer = answerer.answer(datagram, host, True, 0, 0.0)
        assert answer is None or len(answer) <= len(datagram)
        assert answer is None or sent.kind in (Kind.HELLO, Kind.PING)


def test_hellos_are_answered_ten_times_a_second() -> None:
    answerer = Answerer(DOOR)
    answered = 0
    for number in range(1000):
        hello = Probe(kind=Kind.HELLO, session=number.to_bytes(8)).encode()
        answered += answerer.answer(hello, f"10.0.{number // 250}.{number % 250}", True, 0, number / 500) is not None
    assert 10 <= answered <= 30  # ten a second for two seconds, and a burst of ten


def test_pings_of_a_session_are_limited() -> None:
    answerer = Answerer(DOOR)
    ping = challenged(answerer).encode()
    answered = sum(answerer.answer(ping, HOST, False, 0, number / 500) is not None for number in range(25_000))
    assert answered == 20_000


def test_sessions_are_bounded() -> None:
    answerer = Answerer(DOOR)
    pings = [challenged(answerer, session=number.to_bytes(8), now=float(number)) for number in range(200)]
    for number, ping in enumerate(pings):
        assert answerer.answer(ping.encode(), HOST, False, 0, 300.0 + number) is not None
    answer = answerer.answer(pings[0].encode(), HOST, False, 0, 600.0)
    assert answer is not None
    pong = Probe.decode(answer)
    assert pong is not None
    assert pong.by_unicast == 1  # the session was forgotten in between
    again = Probe.decode(answerer.answer(pings[199].encode(), HOST, False, 0, 601.0) or b"")
    assert again is not None
    assert again.by_unicast == 2


@given(st.sets(st.integers(100, 9000), min_size=1, max_size=8), st.integers(0, 9000))
def test_the_largest_passing_size_is_found(sizes: set[int], limit: int) -> None:
    rungs, tried = sorted(sizes), []

    def passes(size: int) -> bool:
        tried.append(size)
        return size <= limit

    passed, lost = climb(rungs, passes)
    assert passed is None or passed <= limit
    assert lost is None or lost > limit
    assert (lost is None) == (max(rungs) <= limit)
    assert (passed is None) == (min(rungs) > limit)
    assert len(tried) <= len(rungs) + 7
    if passed is not None and lost is not None:
        below = max(size for size in rungs if size <= limit)
        above = min(size for size in rungs if size > limit)
        assert lost - passed <= max(1, (above - below) // 2**6)


@given(st.integers(0, 100))
def test_loss_is_not_mistaken_for_a_size_limit(received: int) -> None:
    tries = tries_for(Series(100, [1.0] * received))
    assert 3 <= tries <= 20
    assert (1 - received / 100) ** tries < 1e-3 or received < 30
