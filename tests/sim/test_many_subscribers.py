"""Many subscribers of several publishers confirm everything, whatever else is asked at the same time."""

import pytest

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.events import ReceiverEvicted, WatermarkCompleted
from fjm2.norm.sim import Network, Node

CONFIG = SenderConfig(flow=Flow.MIN, rate_bps=None, stream_bytes=4 << 20, repair_bytes=0)


class Publisher:
    """Writes small messages at a rate, and asks for the next confirmation as soon as it has one."""

    def __init__(self, net: Network, node: Node, subs: list[Node], messages_per_s: float) -> None:
        self.net, self.node, self.subs = net, node, subs
        self._every_s = 1.0 / messages_per_s
        self._asked = -1
        self._step()

    def _step(self) -> None:
        if self._asked < 0:
            self._asked = 0
        elif len(self.node.events(WatermarkCompleted)) == self._asked:
            self._asked += 1
            self.node.watermark(self.subs)
        self.node.write(bytes(100), [0])
        self.net.at(self.net.now + self._every_s, self._step)


def confirm(seed: int, count: int, seconds: float, loss: float) -> None:
    net = Network(seed, delay_s=0.0005)
    pubs, subs = [net.sender(CONFIG) for _ in range(4)], [net.receiver() for _ in range(count)]
    for sub in subs:
        sub.keep = sub.log.keep = False
        net.link(net.hub, sub, jitter_s=0.002).lose(loss)
    for number, pub in enumerate(pubs):
        net.at(0.01 * number, lambda pub=pub: Publisher(net, pub, subs, 50.0))  # type: ignore[misc]
    net.run(until=seconds)
    for pub in pubs:
        outcomes = pub.events(WatermarkCompleted)
        assert len(outcomes) >= 3
        assert not frozenset[int]().union(*(outcome.failed for outcome in outcomes))
        assert not pub.events(ReceiverEvicted)
        assert not pub.engine.silent_receivers


@pytest.mark.parametrize(("count", "loss"), [(7, 0.01), pytest.param(24, 0.0, marks=pytest.mark.nightly), (36, 0.01)])
def test_all_confirm(count: int, loss: float) -> None:
    confirm(count, count, 1.0, loss)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [24, 36, 100, 200])
@pytest.mark.parametrize("seed", range(5))
def test_all_of_many_confirm(seed: int, count: int) -> None:
    confirm(seed, count, 2.0, 0.01)
