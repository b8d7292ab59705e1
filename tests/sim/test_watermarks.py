"""Tests of watermarks, by which the sender learns which receivers have everything."""

from groups import PAYLOAD, SLOW, SMALL, Chooser, Tap, behind_router

from fjm2.norm.core.wire import (
    Flush,
    Nack,
)
from fjm2.norm.events import (
    WatermarkCompleted,
)
from fjm2.norm.sim import Network


def test_watermark_names_the_nodes_that_have_everything(net: Network) -> None:
    pub, subs = behind_router(net, 3)
    gone = net.receiver()
    pub.send(PAYLOAD)
    net.run(until=1.0)
    net.link(subs[0].links[0].end, subs[0]).lose(0.3)
    gone.crash()
    pub.write(PAYLOAD)
    net.run(until=1.1)
    mark = pub.watermark([*subs, gone])
    net.run(until=10.0)
    nodes = frozenset(sub.node_id for sub in subs)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, nodes, frozenset([gone.node_id]))]


def test_watermark_waits_for_repairs(net: Network, is_kind: Chooser) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    link = net.link(pub, sub).lose(segments=[5])
    link.back.lose(where=is_kind(Nack))
    pub.send(PAYLOAD)
    mark = pub.watermark([sub])
    net.run(until=0.3)
    assert not pub.events(WatermarkCompleted)
    link.back.mend()
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=10.0)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, frozenset([sub.node_id]), frozenset())]
    assert sub.objects == [PAYLOAD]


def test_watermark_ignores_losses_after_it(net: Network, is_kind: Chooser) -> None:
    """A receiver lacks data after the watermark, but confirms the watermark once it has everything before it."""
    tap = Tap(net)
    pub, sub = net.sender(SLOW), net.receiver()
    link = net.link(pub, sub).lose(segments=[3, *range(11, 400, 3)])
    link.back.lose(where=is_kind(Nack))
    pub.write(PAYLOAD[:1000])
    net.run(until=0.1)
    mark = pub.watermark([sub])
    pub.write(PAYLOAD[1000:20000])
    net.run(until=0.2)
    link.back.mend()
    assert net.run_until(lambda: sub.received >= PAYLOAD[:1000], deadline=2.0)
    asked = len(tap.all(Flush))
    assert net.run_until(lambda: bool(pub.events(WatermarkCompleted)), deadline=2.0)
    assert pub.events(WatermarkCompleted) == [WatermarkCompleted(mark, frozenset([sub.node_id]), frozenset())]
    assert len(tap.all(Flush)) == asked
    assert len(sub.received) < 1200
    assert net.run_until(lambda: sub.received == PAYLOAD[:20000], deadline=10.0)


def test_watermarks_one_after_the_other_on_a_stream(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(0.05)
    marks = []
    for part in range(5):
        pub.write(PAYLOAD[part * 1000 : part * 1000 + 1000])
        net.run(until=net.now + 0.02)
        marks.append(pub.watermark([sub]))
    net.run(until=10.0)
    assert [event.watermark for event in pub.events(WatermarkCompleted)] == marks
    assert all(event.acked == {sub.node_id} for event in pub.events(WatermarkCompleted))
    assert sub.received == PAYLOAD[:5000]
