"""Tests of messages of all types and sizes over a lossy network. They arrive once, in order and unaltered."""

import pytest
from jms_traffic import LANE_OF, PRIORITIES, PRODUCERS, TOPICS, TYPES
from netns import Namespace, Network
from peers import Peer, peers
from representatives import representatives

pytestmark = [pytest.mark.root, pytest.mark.alone]

RUN_S = 150.0
"""Longest time in which all messages must arrive. On an idle machine 100,000 messages take ten seconds."""
GROUP = "239.192.57.97"


def dropped(namespace: Namespace) -> int:
    """Return the number of datagrams that the namespace has dropped so far."""
    table = namespace.run("iptables", "-nvxL", "INPUT").splitlines()
    return sum(int(line.split()[0]) for line in table if "DROP" in line.split()[2:3])


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("loss", "feedback_loss"), representatives([(0.01, 0.0), (0.05, 0.05), (0.2, 0.0)], (0.05, 0.05))
)
@pytest.mark.parametrize("count", [30_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_messages_of_all_types_and_sizes_arrive_once_in_order_and_unaltered(
    network: Network, port: int, loss: float, feedback_loss: float, count: int
) -> None:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    for namespace, probability in ((left, feedback_loss), (right, loss)):
        namespace.cut_trains("veth0")
        if probability:
            namespace.lose(probability)
    arguments = f"fjm2://{GROUP}:{port}?interface=veth0", count
    early, late = (Peer(right, "jms_traffic.py", role, *arguments) for role in ("receive", "receive-late"))
    sender = Peer(left, "jms_traffic.py", "send", *arguments)
    with peers(sender, early, late):
        for peer, is_there in ((early, "ready"), (sender, "ready"), (late, "waiting")):
            peer.wait_for(is_there)
        sender.tell("begin")
        sender.wait_for("sending", lambda number: number >= 3 * count // 10, RUN_S)
        late.tell("join")
        confirmed = sender.wait_for("confirmed", timeout_s=RUN_S)
        early.tell("end")
        late.tell("end")
        all_of_it, rest_of_it = (receiver.wait_for("result", timeout_s=RUN_S) for receiver in (early, late))
        assert [peer.wait() for peer in (sender, early, late)] == [0, 0, 0]

        assert all_of_it["faults"] == []
        assert all_of_it["errors"] == []
        assert all_of_it["received"] == count
        assert set(all_of_it["types"]) == {kind.__name__ for kind in TYPES}
        assert all_of_it["orders"] == PRODUCERS * len(TOPICS) * len(set(PRIORITIES))

        assert rest_of_it["faults"] == []
        assert rest_of_it["errors"] == []
        assert rest_of_it["missing"] == []
        assert count // 20 < rest_of_it["received"] < count
        assert rest_of_it["orders"] == all_of_it["orders"]

        # The network lost datagrams at the configured rate, in all lanes.
        assert confirmed["errors"] == []
        assert len(confirmed["lanes"]) == len(set(LANE_OF))
        assert all(lane["repair_segments_sent"] for lane in confirmed["lanes"].values())
        assert dropped(right) > loss / 2 * confirmed["lanes"]["0"]["datagrams_sent"]
        assert (dropped(left) > 0) == (feedback_loss > 0)
