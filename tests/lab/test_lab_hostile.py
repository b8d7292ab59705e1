"""Tests of strangers' datagrams on the Internet between two gateways. They are dropped, counted, and never answered."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

import pytest
from gateways import Gateway, make_gateways
from internet import Internet
from peers import READY_S, until
from traffic import Traffic, traffic
from wiretap import Address, Injector, Tap, injector

from fjm2d.keys import KeyPair
from fjm2d.tunnel import Endpoint, EndpointConfig, PeerConfig

pytestmark = [pytest.mark.root, pytest.mark.alone]

STRANGER: Address = ("10.57.4.77", 40_000)
"""An address in the subnet of the first gateway, so that an answer would leave by the tapped link."""
COUNT = 100
UNSEEN_S = 1.5
"""Length of the blackout. It must end before peers give each other up, after about 3 s of silence."""
COUNTED_S = 5.0
"""Longest time until the metrics include all datagrams of an attack."""
RANDOM = Random(57)


@dataclass(slots=True)
class Scene:
    """Two gateways with traffic from left to right, and a stranger that has recorded this traffic."""

    left: Gateway
    right: Gateway
    flow: Traffic
    inject: Injector
    tap: Tap
    """Tap on the link to the right gateway."""
    recorded: list[bytes]
    """Datagrams sent to the right gateway, from the first handshake on."""
    unseen: list[bytes]
    """Datagrams sent to the right gateway during a blackout, so that they never arrived."""

    def drops(self) -> dict[str, float]:
        """Return the number of datagrams that the right gateway has dropped, by reason."""
        found: dict[str, float] = {}
        metrics = self.right.metrics()
        by_peer, by_side = metrics.get("fjm2d_peer_drops_total", []), metrics.get("fjm2d_drops_total", [])
        for labels, value in by_peer + [(labels, value) for labels, value in by_side if labels["side"] == "wan"]:
            found[labels["reason"]] = found.get(labels["reason"], 0.0) + value
        return found

    def attack(self, datagrams: list[bytes], source: Address) -> dict[str, int]:
        """Send datagrams to the right gateway. Return how many of them it dropped, by reason."""
        before = self.drops()
        expected = sum(before.values()) + len(datagrams)
        for number, datagram in enumerate(datagrams):
            self.inject.send(datagram, source, self.right.wan)
            if number % 50 == 49:
                time.sleep(0.01)
        until(lambda: sum(self.drops().values()) >= expected, COUNTED_S, lambda: f"{before} {self.drops()}")
        after = self.drops()
        return {reason: int(gain) for reason in after if (gain := after[reason] - before.get(reason, 0))}

    def answers(self) -> int:
        """Return the number of datagrams sent to the stranger."""
        return sum(each.destination[0] == STRANGER[0] for each in list(self.tap.datagrams))


@pytest.fixture(scope="module")
def scene(lab: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        stack.enter_context(lab.trains_cut())
        tap = stack.enter_context(Tap(lab.router, lab["b"].gateway.wan_device))
        gateways = make_gateways(lab, tmp_path_factory.mktemp("hostile"), "a1 b1")
        left, right = gateways["a1"], gateways["b1"]
        for gateway, other in ((right, left), (left, right)):
            gateway.know_peers([other])
            stack.enter_context(gateway)
            # Start the right gateway first, so that it gets the first handshake of the left one.
            gateway.program.wait_for_line("started")
        left.wait_until_up(1)
        flow = stack.enter_context(traffic(lab, "b"))
        until(lambda: len(_large(_sent(tap, left))) >= COUNT, READY_S, lambda: f"{flow}")
        recorded = _sent(tap, left)
        unseen = _record_unseen(lab, left, right)
        flow.publisher.tell("pause")
        time.sleep(1)
        yield Scene(left, right, flow, stack.enter_context(injector(lab.router)), tap, recorded, unseen)


def _sent(tap: Tap, gateway: Gateway) -> list[bytes]:
    return [each.payload for each in tap.of(gateway.wan) if each.is_outgoing]


def _large(datagrams: list[bytes]) -> list[bytes]:
    """Return the datagrams that are long enough to carry messages."""
    return [datagram for datagram in datagrams if len(datagram) > 200]


def _record_unseen(lab: Internet, left: Gateway, right: Gateway) -> list[bytes]:
    """Record what the left gateway sends during a blackout that is too short to end the session."""
    with lab.blackout(), Tap(lab.router, left.host.wan_device) as tap:
        time.sleep(UNSEEN_S)
    return [each.payload for each in tap.to(right.wan)]


@pytest.mark.parametrize("source", ["the peer", "a stranger"])
def test_replays_are_dropped(scene: Scene, source: str) -> None:
    replayed = _large(scene.recorded)[-COUNT:]
    before = scene.flow.received("b")
    drops = scene.attack(replayed, scene.left.wan if source == "the peer" else STRANGER)
    assert drops == {"replayed": len(replayed)}
    _assert_unaffected(scene, before)


def test_replayed_handshakes_are_dropped(scene: Scene) -> None:
    handshakes = [datagram for datagram in scene.recorded[:20] if datagram[0] & 0x0F in (1, 2)]
    assert handshakes
    before = scene.flow.received("b")
    drops = scene.attack(handshakes * 10, STRANGER)
    assert sum(drops.values()) == 10 * len(handshakes)
    assert set(drops) <= {"handshake_replayed", "handshake_stale", "unknown_index", "handshake_too_soon"}
    _assert_unaffected(scene, before)


def test_altered_datagrams_are_dropped(scene: Scene) -> None:
    """Unaltered, the datagrams would be accepted."""
    before = scene.flow.received("b")
    datagrams = [datagram for datagram in _large(scene.unseen) if len(datagram) < 1_400][:COUNT]
    assert len(datagrams) > COUNT / 5
    flipped = scene.attack([_with_a_bit_flipped(datagram) for datagram in datagrams], STRANGER)
    assert flipped["forged"] > 0.8 * len(datagrams)
    assert flipped.keys() <= {"forged", "unknown_index", "malformed", "replayed", "too_old"}
    for altered in (
        [datagram[: RANDOM.randrange(1, len(datagram))] for datagram in datagrams],
        [datagram + b"\0" for datagram in datagrams],
        [datagram[:12] + RANDOM.randbytes(len(datagram) - 12) for datagram in datagrams],
        [RANDOM.randbytes(len(datagram)) for datagram in datagrams],
    ):
        drops = scene.attack(altered, scene.left.wan)
        assert sum(drops.values()) == len(altered)
        assert drops.keys() <= {"forged", "unknown_index", "malformed", "replayed", "too_old", "handshake_forged"}
    _assert_unaffected(scene, before)


def test_a_gateway_that_is_not_on_the_list_gets_no_answer(scene: Scene) -> None:
    before, now = scene.flow.received("b"), time.monotonic()
    unlisted = Endpoint(KeyPair.generate(), EndpointConfig(), wall_ns=time.time_ns, random=RANDOM)
    unlisted.add_peer(PeerConfig(public_key=scene.right.keys.public, addresses=(scene.right.wan,)), now)
    initiation = unlisted.poll_train(now)
    assert initiation is not None
    assert scene.attack([initiation.data.tobytes()], STRANGER) == {"unknown_peer": 1}
    _assert_unaffected(scene, before)


def test_reordered_and_duplicated_datagrams_are_sorted_out(lab: Internet, scene: Scene) -> None:
    """Gateways and NORM together deliver each message once."""
    before, replayed = scene.flow.received("b"), scene.drops().get("replayed", 0)
    with lab.delay(0.002, reorder=0.1, duplicate=0.1):
        scene.flow.publisher.tell("begin")
        until(lambda: scene.flow.received("b") - before > 2 * COUNT, READY_S, lambda: f"{scene.flow}")
        scene.flow.publisher.tell("pause")
        time.sleep(1)
    assert scene.flow.subscribers["b"].all("fault") == []
    assert scene.drops()["replayed"] - replayed > 10


def test_the_attacks_changed_nothing(scene: Scene) -> None:
    assert scene.answers() == 0
    scene.flow.publisher.tell("begin")
    time.sleep(1)
    scene.flow.end()
    assert len([line for line in scene.right.program.lines if "peer_up" in line]) == 1
    assert not any(word in line for line in scene.right.program.lines for word in ("peer_moved", "Traceback"))


def _with_a_bit_flipped(datagram: bytes) -> bytes:
    changed = bytearray(datagram)
    changed[RANDOM.randrange(len(changed))] ^= 1 << RANDOM.randrange(8)
    return bytes(changed)


def _assert_unaffected(scene: Scene, received: int) -> None:
    """Check that no message arrived, the stranger got no answer, and the gateway is still running."""
    assert scene.flow.received("b") == received
    assert scene.answers() == 0
    assert scene.right.program.is_running
