"""Tests of attacks on tunnels by strangers.

A datagram that does not authenticate gets no answer, and changes nothing but the counters of drops.
"""

import pickle
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tunnel_sim import Net, Node, Path, connected, datagrams, key_of

from fjm2.norm import Train
from fjm2d.keys import KeyPair
from fjm2d.tunnel import OVERHEAD_BYTES, Drop, EndpointConfig, Kind
from fjm2d.tunnel.crypto.handshake import Opening, Pair
from fjm2d.tunnel.events import ClockBehind, PeerDown, PeerMoved
from fjm2d.tunnel.wire import INITIATION_BYTES, RESPONSE_BYTES, Initiation
from fjm2d.tunnel.workspace import Workspace

STRANGER = ("198.51.100.66", 666)


def state_of(thing: Any, seen: set[int] | None = None) -> Any:
    """Return the state of an object as plain values, without drop counters, scratch space and random generators."""
    seen = set() if seen is None else seen
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, int | float | str | bytes | type(None)):
        return thing
    if id(thing) in seen:
        return "again"
    seen.add(id(thing))
    if isinstance(thing, Workspace | Random) or (
        isinstance(thing, Counter) and all(isinstance(k, Drop) for k in thing)
    ):
        return None
    if isinstance(thing, dict):
        return [(state_of(key, seen), state_of(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset | deque):
        return [state_of(item, seen) for item in thing]
    if not type(thing).__module__.startswith("fjm2d"):
        return id(thing)
    slots = [name for base in type(thing).__mro__ for name in getattr(base, "__slots__", ())]
    names = sorted({*slots, *getattr(thing, "__dict__", ())})
    return [(name, state_of(getattr(thing, name), seen)) for name in names if hasattr(thing, name)]


def drops_of(node: Node) -> Counter[Drop]:
    total = Counter(node.endpoint.drops)
    for peer in node.endpoint.peers.values():
        total += peer.stats.drops
    return total


def attack(victim: Node, messages: Iterable[bytes], allowed: set[Drop], source: tuple[str, int] = STRANGER) -> int:
    """Check that each message is dropped for an allowed reason, gets no answer and changes nothing.

    Return the number of messages.
    """
    endpoint, now = victim.endpoint, victim.net.now
    before, drops = state_of(endpoint), drops_of(victim)
    number = 0
    for message in messages:
        if not message:
            continue
        train = Train(np.frombuffer(message, np.uint8), len(message), source)
        assert endpoint.receive_train(train, now) == []
        assert endpoint.poll_train(now) is None, "not a byte goes out"
        assert endpoint.poll_event() is None
        number += 1
    assert state_of(endpoint) == before
    gone = drops_of(victim) - drops
    assert gone.total() == number
    assert set(gone) <= allowed, gone
    return number


def flips(message: bytes) -> Iterator[bytes]:
    """Generate copies of a message, one for each bit, with this bit flipped."""
    for place in range(8 * len(message)):
        turned = bytearray(message)
        turned[place // 8] ^= 1 << place % 8
        yield bytes(turned)


def truncations(message: bytes) -> Iterator[bytes]:
    for length in range(len(message)):
        yield message[:length]


def recorded(seconds: float = 0.0, config: EndpointConfig | None = None) -> tuple[Net, Node, Node, dict[str, bytes]]:
    """Return two gateways with a session, and one recorded datagram of each kind.

    The response to the handshake goes from b to a, all others from a to b.
    """
    net = Net(3)
    a, b = net.node("a", config), net.node("b", config)
    a.records = b.records = True
    b.add(a, knows=False)
    a.add(b)
    net.run(1)
    a.send(b, b"some content of a datagram")
    a.send(b, b"feedback", kind=Kind.FEEDBACK)
    a.send(b, bytes(3000))
    net.run(0.2 + seconds)
    kinds: dict[str, bytes] = {}
    for node, train in [(a, train) for train in a.sent] + [(b, train) for train in b.sent]:
        data = train.data.tobytes()[: train.segment_bytes]
        kind = Kind(data[0] & 15).name
        if node is a or kind == "RESPONSE":
            kinds.setdefault(kind, data)
    assert set(kinds) == {"INITIATION", "RESPONSE", "PROBE", "NORM", "FEEDBACK", "NORM_PART"}
    return net, a, b, kinds


TAMPERED = {
    Drop.FORGED,
    Drop.MALFORMED,
    Drop.UNKNOWN_INDEX,
    Drop.UNKNOWN_PEER,
    Drop.REPLAYED,
    Drop.TOO_OLD,
    Drop.HANDSHAKE_FORGED,
}


@pytest.mark.parametrize("kind", ["INITIATION", "RESPONSE", "PROBE", "NORM", "FEEDBACK", "NORM_PART"])
def test_datagrams_of_any_kind_with_a_flipped_bit_are_dropped(kind: str) -> None:
    """The datagrams have not arrived before. Unaltered, they would be accepted."""
    net = Net(3)
    a, b = net.node("a"), net.node("b")
    a.records = b.records = True
    b.add(a, knows=False)
    if kind in ("INITIATION", "RESPONSE"):
        net.path(a, b).is_cut = kind == "INITIATION"
        net.path(b, a).is_cut = True
        a.add(b)
        net.run(0.1)
        victim, message = (b, a.sent[-1].data.tobytes()) if kind == "INITIATION" else (a, b.sent[-1].data.tobytes())
    else:
        a.add(b)
        net.run(0.5)
        net.path(a, b).is_cut = True
        content = {"NORM": b"x" * 40, "FEEDBACK": b"y" * 40, "NORM_PART": bytes(1500), "PROBE": b""}[kind]
        if content:
            a.send(b, content, kind=Kind.FEEDBACK if kind == "FEEDBACK" else Kind.NORM)
        else:
            a.peer(b)._prober.ask(net.now)
            a.settle()
        victim, train = b, a.sent[-1]
        message = train.data.tobytes()[: train.segment_bytes]
    assert Kind(message[0] & 15).name == kind
    source = a.address if victim is b else b.address
    # A datagram whose counter was altered does not authenticate, so the replay window does not move.
    assert attack(victim, flips(message), TAMPERED, source) == 8 * len(message)
    attack(victim, truncations(message), TAMPERED, source)
    attack(victim, (message + b"\0", message + message[:27], b"\0" + message), TAMPERED, source)
    before = state_of(victim.endpoint)
    victim.endpoint.receive_train(Train(np.frombuffer(message, np.uint8), len(message), source), net.now)
    assert state_of(victim.endpoint) != before, "unaltered it is accepted"


def test_replays_of_any_datagram_from_any_address_are_dropped() -> None:
    """Both gateways get all datagrams that either has sent. So some are reflected to their sender."""
    net, a, b, _ = recorded()
    net.run(30)
    wires = [
        data[start : start + train.segment_bytes]
        for train in (*a.sent, *b.sent)
        for data in [train.data.tobytes()]
        for start in range(0, len(data), train.segment_bytes)
    ]
    assert len(wires) > 20
    allowed = {Drop.REPLAYED, Drop.UNKNOWN_INDEX, Drop.UNKNOWN_PEER, Drop.HANDSHAKE_REPLAYED, Drop.HANDSHAKE_FORGED}
    for victim in (a, b):
        for source in (STRANGER, a.address, b.address):
            attack(victim, wires, allowed, source)
    assert a.peer(b).path.address == b.address


def test_replays_after_the_keys_expired_are_dropped() -> None:
    net, a, b, kinds = recorded(config=EndpointConfig(rekey_s=10))
    net.run(60)
    allowed = {Drop.UNKNOWN_INDEX, Drop.HANDSHAKE_REPLAYED}
    for victim in (a, b):
        attack(victim, [m for m in kinds.values() if victim is b or m is not kinds["INITIATION"]], allowed)


def test_a_restarted_gateway_does_not_answer_old_handshakes() -> None:
    net, a, b, kinds = recorded()
    net.run(1000)
    a.is_running = False
    b.restart()
    b.add(a, knows=False)
    now = net.now
    train = Train(np.frombuffer(kinds["INITIATION"], np.uint8), INITIATION_BYTES, STRANGER)
    b.endpoint.receive_train(train, now)
    assert b.endpoint.poll_train(now) is None
    assert drops_of(b)[Drop.HANDSHAKE_STALE] == 1
    assert isinstance(b.endpoint.poll_event(), ClockBehind)
    b.endpoint.receive_train(train, now)
    assert b.endpoint.poll_event() is None, "the report comes once"


def test_a_delayed_handshake_is_answered_once() -> None:
    """The handshake comes twice from a stranger's address.

    It gets one answer, which is no longer than itself, and the peer's address stays the same.
    """
    net, a, b = connected()
    a.records = True
    net.paths["a", "b"].is_cut = True
    assert net.until(lambda: any(train.segment_bytes == INITIATION_BYTES for train in a.sent), 200) < 200
    message = next(train for train in a.sent if train.segment_bytes == INITIATION_BYTES).data
    where = b.peer(a).path.address
    b.endpoint.receive_train(Train(message, message.size, STRANGER), net.now)
    answer = b.endpoint.poll_train(net.now)
    assert answer is not None
    assert answer.data.size <= message.size
    assert b.peer(a).path.address == where
    attack(b, [message.tobytes()], {Drop.HANDSHAKE_REPLAYED})


def test_handshakes_from_before_the_current_session_are_never_answered() -> None:
    """The old handshakes never arrived. The current session was made by a handshake of the other side."""
    net = Net(3)
    a, b = net.node("a"), net.node("b")
    a.records = True
    net.paths["a", "b"] = Path(is_cut=True)
    a.add(b)
    net.run(2)
    recorded = [train.data.tobytes() for train in a.sent if train.segment_bytes == INITIATION_BYTES]
    assert len(recorded) > 1
    net.path(a, b).is_cut = False
    a.sent.clear()
    a.peer(b)._handshakes.stop()
    b.add(a)
    net.run(1)
    assert b.peer(a).is_up
    assert not any(train.segment_bytes == INITIATION_BYTES for train in a.sent), "b made the session"
    where = b.peer(a).path.address
    attack(b, recorded, {Drop.HANDSHAKE_REPLAYED})
    assert b.peer(a).path.address == where
    assert b.peer(a).stats.handshakes_answered == 0


def test_answers_are_never_longer_than_questions() -> None:
    assert RESPONSE_BYTES <= INITIATION_BYTES
    net, a, b = connected()
    a.records = b.records = True
    a.sent.clear()
    b.sent.clear()
    for node, other in ((a, b), (b, a)):
        for _ in range(3):
            node.peer(other)._prober.ask(net.now)
        node.settle()
    net.run(0.1)
    for node in (a, b):
        sizes = [train.data.size for train in node.sent]
        assert len(sizes) == 6
        assert max(sizes[3:]) <= min(sizes[:3])


def test_a_peer_that_spoofs_addresses_cannot_amplify_traffic() -> None:
    """The attacker is a peer with a session. Long probes go only to an address that has answered a short one."""
    net, a, b = connected()
    home = b.address
    net.run(12)
    a.records = b.records = True
    for number in range(1000):
        b.address = ("198.51.100.7", 1024 + number)
        b.send(a, b"x")
        net.run(0.001)
    there = [train for train in a.sent if train.address not in (home, b.address)]
    assert there, "the newest address counts"
    assert sum(train.data.size for train in there) < sum(train.data.size for train in b.sent)
    assert max(train.data.size for train in there) < 100
    assert len(a.events_of(PeerMoved)) < 5
    b.address = home
    b.send(a, b"back")
    assert net.until(lambda: a.peer(b).path.mtu_bytes == 1500, 5) < 5


def test_old_answers_do_not_prove_a_new_address() -> None:
    net, a, b = connected()
    b.records = True
    a.peer(b)._prober.ask(net.now)
    a.settle()
    net.path(b, a).is_cut = True
    net.run(0.1)
    answer = b.sent[-1].data.tobytes()
    net.path(b, a).is_cut = False
    a.records = True
    a.receive(answer, len(answer), STRANGER)
    assert a.peer(b).path.address == STRANGER
    b.is_running = False
    net.run(15)
    assert STRANGER in [train.address for train in a.sent]
    assert max(train.data.size for train in a.sent if train.address == STRANGER) <= INITIATION_BYTES


def test_repeated_goodbyes_cause_no_storm() -> None:
    net, a, b = connected()

    def leave() -> None:
        if b.peer(a).is_up:
            b.peer(a)._prober.say_goodbye(net.now)
        b.peer(a)._handshakes.stop()
        b.settle()
        net.at(net.now + 0.001, leave)

    before = a.peer(b).stats.handshakes_sent
    leave()
    net.run(20)
    assert 0 < a.peer(b).stats.handshakes_sent - before <= 50
    assert len(a.events_of(PeerDown)) <= 50


def test_a_stranger_with_its_own_key_is_refused() -> None:
    """The stranger knows both public keys. It is refused because no list of peers contains its own key."""
    _, a, b = connected()
    eve = key_of("eve")
    random = Random(1)
    now_ns = a.wall_ns() + 10**9
    honest = Opening(Pair(eve, b.keys.public), 5, now_ns, random.randbytes).message
    posing = Initiation.decode(honest)
    assert posing is not None
    as_a = Initiation(a.keys.public.id, 5, now_ns, posing.ephemeral, posing.proof, posing.mac).encode()
    attack(b, [honest], {Drop.UNKNOWN_PEER})
    attack(b, [as_a], {Drop.HANDSHAKE_FORGED})


def test_public_keys_alone_do_not_make_a_mac() -> None:
    """Only an owner of one of the two private keys can trigger the expensive part of a handshake."""
    _, a, b = connected()
    eve = key_of("eve")
    as_a, as_b = Pair(eve, b.keys.public), Pair(eve, a.keys.public)
    message = Opening(Pair(a.keys, b.keys.public), 1, 2, Random(1).randbytes).message
    for pair in (as_a, as_b):
        assert not b.endpoint.peers[a.keys.public.id]._handshakes.pair.is_genuine(pair.stamp(message))
    assert b.endpoint.peers[a.keys.public.id]._handshakes.pair.is_genuine(message)
    assert not a.endpoint.peers[b.keys.public.id]._handshakes.pair.is_genuine(message), (
        "it is not valid in the other direction"
    )


def test_a_valid_mac_alone_is_not_enough() -> None:
    """A thief of b's key can make the MACs of messages from a, but cannot complete a handshake with b as a."""
    _, a, b = connected()
    thief = Pair(b.keys, a.keys.public)
    stolen = Opening(Pair(b.keys, a.keys.public), 9, a.wall_ns() + 10**9, Random(2).randbytes).message
    forged = bytearray(stolen)
    forged[4:8] = a.keys.public.id.to_bytes(4)
    thief._mac_key_out, thief._mac_key_in = thief._mac_key_in, thief._mac_key_out
    attack(b, [thief.stamp(bytes(forged))], {Drop.HANDSHAKE_FORGED})


def test_genuine_handshakes_are_answered_no_more_than_twenty_times_a_second() -> None:
    net, a, b = connected()
    pair, random = Pair(a.keys, b.keys.public), Random(5)
    stamp = a.wall_ns() + 10**9
    answers = 0
    for number in range(1000):
        now = net.now + number / 1000
        message = Opening(pair, 1000 + number, stamp + number, random.randbytes).message
        b.endpoint.receive_train(Train(np.frombuffer(message, np.uint8), len(message), a.address), now)
        answers += b.endpoint.poll_train(now) is not None
    assert 15 <= answers <= 20
    assert drops_of(b)[Drop.HANDSHAKE_TOO_SOON] == 1000 - answers
    assert len(b.endpoint.indexes) <= 3, "each takes the place of the one before"


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 2000))
def test_trains_of_noise_are_dropped(garbage: bytes, segment_bytes: int) -> None:
    endpoint = NOISE_VICTIM.endpoint
    before, drops = state_of(endpoint), drops_of(NOISE_VICTIM)
    segment_bytes = min(segment_bytes, len(garbage))
    train = Train(np.frombuffer(garbage, np.uint8), segment_bytes, STRANGER)
    assert endpoint.receive_train(train, NOISE_VICTIM.net.now) == []
    assert endpoint.poll_train(NOISE_VICTIM.net.now) is None
    assert state_of(endpoint) == before
    assert (drops_of(NOISE_VICTIM) - drops).total() == train.count


NOISE_VICTIM = connected()[2]


@given(st.integers(0, 255), st.integers(1, 1500), st.integers(0, 3), st.binary(max_size=64))
def test_forgeries_for_an_existing_session_are_dropped(first: int, size: int, hops: int, content: bytes) -> None:
    """The attacker has read the index of the session on the wire."""
    index = next(iter(NOISE_VICTIM.endpoint.indexes)).to_bytes(4)
    header = bytes([first]) + b"\0\7" + index + bytes(4) + bytes([hops])
    message = (header + content).ljust(size + OVERHEAD_BYTES, b"\0")
    attack(NOISE_VICTIM, [message], TAMPERED)


def test_the_good_datagrams_of_a_mixed_train_are_accepted() -> None:
    """The kernel joins datagrams by address, so a train can contain an attacker's datagrams between those of a peer."""
    net, a, b = connected()
    a.records = True
    net.path(a, b).is_cut = True
    contents = list(datagrams(10, 100))
    a.send(b, *contents)
    wire = bytearray(a.sent[-1].data.tobytes())
    step = a.sent[-1].segment_bytes
    wire[3 * step + 20] ^= 1  # content
    wire[5 * step + 4] ^= 1  # index
    wire[7 * step : 8 * step] = wire[6 * step : 7 * step]  # replay
    wire[9 * step] ^= 0xC0  # version
    before = drops_of(b)
    b.receive(bytes(wire), step, a.address)
    assert b.contents == [contents[place] for place in (0, 1, 2, 4, 6, 8)]
    drops = drops_of(b) - before
    assert [drops[reason] for reason in (Drop.FORGED, Drop.UNKNOWN_INDEX, Drop.REPLAYED, Drop.MALFORMED)] == [1] * 4


def test_reordered_trains_are_all_accepted_once() -> None:
    net, a, b = connected()
    a.records = True
    net.path(a, b).is_cut = True
    contents = list(datagrams(4000, 50))
    for start in range(0, 4000, 40):
        a.send(b, *contents[start : start + 40])
    order = list(a.sent)
    Random(1).shuffle(order)
    for train in order * 2:
        b.receive(train.data.tobytes(), train.segment_bytes, a.address)
    assert sorted(b.contents) == sorted(contents)
    assert drops_of(b)[Drop.REPLAYED] == 4000


def test_garbage_takes_bounded_time_and_memory() -> None:
    """The time for each datagram of a flood is bounded, whichever check rejects it.

    The flood does not increase memory.
    """
    net, a, b = connected()
    index = next(iter(b.endpoint.indexes)).to_bytes(4)
    a_id = a.keys.public.id.to_bytes(4)
    random = Random(7)
    floods = {
        "noise": [random.randbytes(60 * 64) for _ in range(20)],
        "unknown sessions": [b"".join(b"\x53\0\7" + random.randbytes(57) for _ in range(64)) for _ in range(20)],
        "a known session": [b"".join(b"\x53\0\7" + index + random.randbytes(53) for _ in range(64)) for _ in range(20)],
        "handshakes": [
            b"".join(b"\x41\0\0\0" + a_id + random.randbytes(60) + bytes(12) + random.randbytes(16) for _ in range(64))
            for _ in range(20)
        ],
    }
    before = state_of(b.endpoint)
    for name, trains in floods.items():
        step = len(trains[0]) // 64
        best = float("inf")
        for train in trains:
            start = time.perf_counter()
            b.endpoint.receive_train(Train(np.frombuffer(train, np.uint8), step, STRANGER), net.now)
            best = min(best, (time.perf_counter() - start) / 64)
        assert best < 20e-6, f"{name}: {1e6 * best:.1f} us a datagram"
    assert b.endpoint.poll_train(net.now) is None
    assert state_of(b.endpoint) == before
    reached = (Drop.MALFORMED, Drop.UNKNOWN_INDEX, Drop.FORGED, Drop.HANDSHAKE_FORGED)
    assert all(drops_of(b)[reason] >= 1000 for reason in reached), "each kind of flood reached its check"


def test_secrets_do_not_appear_in_repr_or_pickle() -> None:
    keys = KeyPair.generate()
    _, a, b = connected()
    secret = a.keys._private.private_bytes_raw()
    things = [
        keys,
        a.keys,
        a.endpoint,
        a.peer(b),
        a.peer(b)._epochs.current,
        a.endpoint._shared,
        a.peer(b)._handshakes.pair,
    ]
    for thing in things:
        for text in (repr(thing), str(thing)):
            assert secret.hex() not in text
            assert repr(secret) not in text
    with pytest.raises(TypeError):
        pickle.dumps(keys)


def test_authentic_but_invalid_content_is_counted() -> None:
    """A compromised peer, or a peer of another version, does no harm either."""
    _, a, b = connected()
    session = a.peer(b)._epochs.current.session  # type: ignore[union-attr]
    here = b.peer(a)
    for kind, content, hops in [
        (Kind.PROBE, b"short", 0),
        (Kind.NORM, b"no hop left", 0),
        (Kind.NORM_PART, b"1234", 1),
        (Kind.NORM_PART, b"\0\0\0\1\5\2\0\7content", 1),
        (Kind.NORM, b"", 1),
    ]:
        before = here.stats.drops[Drop.BAD_CONTENT]
        train = session.seal_train(np.frombuffer(content, np.uint8), max(1, len(content)), kind, 7, hops)
        b.receive(train.tobytes(), train.size, a.address)
        assert here.stats.drops[Drop.BAD_CONTENT] == before + 1, kind
    assert not b.received
    assert here.is_up
