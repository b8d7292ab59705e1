"""Tests of wire formats, the handshake pattern, the replay window against a simple model, and single sessions."""

import itertools
from collections import Counter
from random import Random

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from fjm2d.keys import KeyPair
from fjm2d.tunnel import OVERHEAD_BYTES, Drop, Kind, group_hash
from fjm2d.tunnel.crypto.noise import Initiator, NoiseError, Responder
from fjm2d.tunnel.crypto.replay import WINDOW, ReplayWindow
from fjm2d.tunnel.session import CounterExhausted, Session, counters_of, prefixes_of
from fjm2d.tunnel.wire import (
    COUNTER_END,
    INITIATION_BYTES,
    PROBE_BYTES,
    RESPONSE_BYTES,
    SEALED,
    Initiation,
    Prefix,
    Probe,
    Response,
)

UINT32 = st.integers(0, (1 << 32) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)


def blob(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


INITIATIONS = st.builds(Initiation, UINT32, UINT32, UINT64, blob(32), blob(16), blob(16))
RESPONSES = st.builds(Response, UINT32, blob(32), blob(28), blob(16))


@given(INITIATIONS)
def test_initiations_survive_encoding_and_decoding(message: Initiation) -> None:
    assert len(message.encode()) == INITIATION_BYTES == 96
    assert Initiation.decode(message.encode()) == message


@given(RESPONSES)
def test_responses_survive_encoding_and_decoding(message: Response) -> None:
    assert len(message.encode()) == RESPONSE_BYTES == 84
    assert Response.decode(message.encode()) == message


@given(st.one_of(st.binary(max_size=200), blob(96), blob(84), blob(24)))
def test_any_bytes_are_a_message_or_none(data: bytes) -> None:
    for kind in (Initiation, Response):
        message = kind.decode(data)
        assert message is None or message.encode() == data
    assert (Probe.decode(data) is None) == (len(data) < PROBE_BYTES)


@given(st.builds(Probe, st.integers(0, 255), UINT32, UINT64, UINT64), st.integers(0, 1500))
def test_probes_survive_encoding_with_any_padding(probe: Probe, size: int) -> None:
    content = probe.encode(size)
    assert len(content) == max(size, PROBE_BYTES)
    assert Probe.decode(content) == probe


@given(st.integers(0, 15), st.integers(0, 3), st.integers(0, 65_535), UINT32)
def test_prefixes_survive_encoding_and_decoding(kind: int, hops: int, group: int, index: int) -> None:
    prefix = Prefix(kind, hops, group, index)
    assert Prefix.of_number(int.from_bytes(prefix.encode())) == prefix


def test_formats_are_those_of_the_documentation() -> None:
    prefix = Prefix(Kind.NORM, 1, 0x0203, 0x04050607)
    assert prefix.encode().hex() == "53020304050607"
    assert Probe(1, 2, 3, 4).encode().hex() == "01000000000000020000000000000003" + "0000000000000004"
    start = Initiation(0x01020304, 0x05060708, 9, b"e" * 32, b"p" * 16, b"m" * 16).encode()
    assert (
        start
        == bytes.fromhex("41000000 01020304 05060708 0000000000000009") + b"e" * 32 + b"p" * 16 + bytes(12) + b"m" * 16
    )
    answer = Response(0x01020304, b"e" * 32, b"i" * 28, b"m" * 16).encode()
    assert answer == bytes.fromhex("42000000 01020304") + b"e" * 32 + b"i" * 28 + b"m" * 16
    assert Prefix.of_number(int.from_bytes(b"\x93\2\3\4\5\6\7")) is None, "another version"
    assert len(SEALED) == 7


def test_group_hashes() -> None:
    assert group_hash("239.192.57.40", 5740) == group_hash("239.192.57.40", 5740) != group_hash("239.192.57.40", 5741)
    assert all(0 < group_hash("239.0.0.1", port) < 65_536 for port in range(2000))


# The handshake pattern.


def test_the_handshake_is_noise_kk() -> None:
    """Messages and keys equal those of another implementation of the Noise framework for the same key pairs."""
    ours, theirs = KeyPair(b"\1" * 32), KeyPair(b"\2" * 32)
    initiator = Initiator(ours, theirs.public, b"\3" * 32, b"a prologue")
    first = b"".join(initiator.write(b"first"))
    assert first.hex() == (
        "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22b64b94555f6ecc41a63d0ad3ed3963c8e0934e5782"
    )
    responder = Responder(theirs, ours.public, b"\4" * 32, b"a prologue")
    assert responder.read(first[:32], first[32:]) == b"first"
    ephemeral, sealed, send_key, receive_key = responder.write(b"second")
    assert (ephemeral + sealed).hex() == (
        "ac01b2209e86354fb853237b5de0f4fab13c7fcbf433a61c019369617fecf10bec148bc73f6d9507b6d8127c3b4ba27a5d525bf2d97e"
    )
    assert initiator.read(ephemeral, sealed) == (b"second", receive_key, send_key)
    sealed_by_initiator = bytes.fromhex("330c293e7502c4f1297f557d8bb31ac92005")
    assert AESGCM(receive_key).decrypt(bytes(12), sealed_by_initiator, b"") == b"hi"


@pytest.mark.parametrize("what", ["other initiator", "other responder", "other prologue", "low order"])
def test_a_handshake_with_another_key_or_prologue_fails(what: str) -> None:
    a, b, c = (KeyPair.generate() for _ in range(3))
    initiator = Initiator(c if what == "other initiator" else a, b.public, b"\3" * 32, b"x")
    responder = Responder(
        c if what == "other responder" else b, a.public, b"\4" * 32, b"y" if what == "other prologue" else b"x"
    )
    ephemeral, sealed = initiator.write()
    with pytest.raises(NoiseError):
        responder.read(bytes(32) if what == "low order" else ephemeral, sealed)


# The replay window.


class ModelWindow:
    """A simple model of the replay window. It remembers every counter."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def take(self, counters: list[int]) -> list[bool]:
        """Mark the counters of a train as seen. Return, for each counter, True if it was new before the train."""
        newest = max(self.seen, default=-1)
        fresh, here = [], set()
        for counter in counters:
            fresh.append(counter > newest - WINDOW and counter not in self.seen and counter not in here)
            here.add(counter)
        self.seen |= {counter for counter, is_new in zip(counters, fresh, strict=True) if is_new}
        return fresh


TRAINS = st.lists(
    st.tuples(st.integers(-40_000, 40_000), st.lists(st.integers(0, 70), min_size=1, max_size=64)), max_size=40
)


@given(TRAINS, st.integers(0, 1 << 30))
def test_the_window_agrees_with_the_model(trains: list[tuple[int, list[int]]], start: int) -> None:
    window, model = ReplayWindow(), ModelWindow()
    base = start
    for jump, offsets in trains:
        base = max(0, base + jump)
        counters = [base + offset for offset in offsets]
        array = np.array(counters, np.int64)
        fresh = window.are_new(array)
        assert window.is_new(counters[0]) == fresh[0]
        assert fresh.tolist() == model.take(counters)
        assert (window.is_too_old(array) & fresh).sum() == 0
        if len(counters) == 1 and fresh[0]:
            window.mark_one(counters[0])
        elif fresh.any():
            window.mark(array[fresh])
        assert window.newest == max(model.seen)


def test_the_window_is_wide_enough_and_wraps() -> None:
    assert WINDOW >= 8192
    window = ReplayWindow()
    for start in range(0, 5 * WINDOW, 1000):
        counters = np.arange(start, start + 1000)
        assert window.are_new(counters).all()
        window.mark(counters)
        assert not window.are_new(counters).any()
    window.mark(np.array([window.newest + WINDOW - 1]))
    assert window.are_new(np.arange(window.newest - WINDOW + 1, window.newest)).sum() == WINDOW - 2
    assert not window.are_new(np.array([window.newest - WINDOW])).any()


@pytest.mark.parametrize("jump", [1, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 10, 5 * WINDOW + 3])
def test_after_a_jump_only_counters_still_in_the_window_stay_marked(jump: int) -> None:
    window = ReplayWindow()
    window.mark(np.arange(2 * WINDOW))
    window.mark_one(2 * WINDOW - 1 + jump)
    counters = np.arange(window.newest - WINDOW + 1, window.newest)
    assert window.are_new(counters).tolist() == (counters >= 2 * WINDOW).tolist()


# Sessions.


def pair() -> tuple[Session, Session]:
    random = Random(1)
    one, two = random.randbytes(32), random.randbytes(32)
    return Session(one, two, 7, 8), Session(two, one, 8, 7)


def array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


@given(st.binary(min_size=1, max_size=5000), st.integers(1, 1600), st.sampled_from(sorted(SEALED)), st.integers(0, 3))
def test_trains_are_sealed_and_opened(content: bytes, segment_bytes: int, kind: int, hops: int) -> None:
    here, there = pair()
    count = -(-len(content) // segment_bytes)
    for number in range(2):
        sealed = here.seal_train(array(content), segment_bytes, kind, 0x1234, hops)
        assert sealed.size == len(content) + count * OVERHEAD_BYTES
        step = min(segment_bytes + OVERHEAD_BYTES, sealed.size)
        assert {Prefix.of_number(int(p)) for p in prefixes_of(sealed, step)} == {Prefix(kind, hops, 0x1234, 8)}
        assert counters_of(sealed, step).tolist() == list(range(number * count, (number + 1) * count))
        drops: Counter[Drop] = Counter()
        opened = there.open_train(sealed, step, drops)
        assert opened is not None
        assert opened.data.tobytes() == content
        assert (opened.count, opened.segment_bytes) == (count, min(segment_bytes, len(content)))
        assert opened.is_newest
        assert not drops
    assert here.sent == there.received == 2 * count


@given(st.data())
def test_the_intact_datagrams_of_a_damaged_train_are_accepted(data: st.DataObject) -> None:
    here, there = pair()
    count = data.draw(st.integers(1, 30))
    tail = data.draw(st.integers(1, 50))
    contents = [bytes([number]) * 50 for number in range(count - 1)] + [b"z" * tail]
    sealed = here.seal_train(array(b"".join(contents)), len(contents[0]), Kind.NORM, 1).copy()
    step = min(len(contents[0]) + OVERHEAD_BYTES, sealed.size)
    bad = data.draw(st.sets(st.integers(0, count - 1)))
    for place in bad:
        sealed[min(place * step + data.draw(st.integers(12, step - 1)), sealed.size - 1)] ^= 1
    drops: Counter[Drop] = Counter()
    opened = there.open_train(sealed, step, drops)
    left = [content for place, content in enumerate(contents) if place not in bad]
    assert (b"" if opened is None else opened.data.tobytes()) == b"".join(left)
    assert drops[Drop.FORGED] == len(bad)
    assert there.received == len(left)


def test_an_exhausted_counter_stays_exhausted() -> None:
    here, there = pair()
    here._counter = COUNTER_END - 3
    last = here.seal_train(array(bytes(30)), 10, Kind.NORM, 1).copy()
    assert counters_of(last, 38).tolist() == [COUNTER_END - 3, COUNTER_END - 2, COUNTER_END - 1]
    opened = there.open_train(last, 38, Counter())
    assert opened is not None
    assert opened.count == 3
    for _ in range(3):
        with pytest.raises(CounterExhausted):
            here.seal_train(array(b"x"), 1, Kind.NORM, 1)
    assert here.sent == COUNTER_END


def test_no_nonce_is_used_twice() -> None:
    """The nonce is the whole header. Even so, counters must not repeat across kinds, groups and lengths."""
    here, _ = pair()
    nonces = set()
    total = 0
    for kind, group, hops in itertools.product(sorted(SEALED), (1, 2), (0, 1)):
        sealed = here.seal_train(array(bytes(70)), 10, kind, group, hops).tobytes()
        nonces |= {sealed[start : start + 12] for start in range(0, len(sealed), 38)}
        total += 7
    assert len(nonces) == total
    assert len({nonce[7:] for nonce in nonces}) == total


def test_keys_of_the_two_directions_differ() -> None:
    here, _ = pair()
    sealed = here.seal_train(array(b"content"), 7, Kind.NORM, 1).copy()
    drops: Counter[Drop] = Counter()
    assert here.open_train(sealed, sealed.size, drops) is None
    assert drops == {Drop.FORGED: 1}
