"""Harm to networks: datagrams are lost, late, or come twice, and paths break."""

from history import Life
from scenario import Scenario
from stage import Stage


def lossy_network(stage: Stage) -> list[Life]:
    """Datagrams are lost on arrival, at subscribers and at the publisher."""
    stage.add_hosts(4)
    for host in stage.hosts:
        host.lose(stage.random.choice([0.01, 0.05, 0.1]))
    for number in (1, 2, 3):
        stage.start(number, "subscribe")
    stage.start_publisher(0, per_s=3000, persistent=1)
    stage.wait(3.0)
    return stage.finish(settle_s=1.0)


def disorder(stage: Stage) -> list[Life]:
    """Datagrams come late, in another order, and twice, at a subscriber or at the publisher."""
    stage.add_hosts(3)
    for host in stage.random.choice([(0,), (2,), (0, 2)]):
        stage.disturb(host, delay=stage.random.choice([0.02, 0.2]), duplicate=stage.random.choice([0.02, 0.2]))
    stage.start(1, "subscribe")
    stage.start(2, "subscribe")
    stage.start_publisher(0, per_s=1500, persistent=1)
    stage.wait(4.0)
    return stage.finish(settle_s=1.0)


def cut_off(stage: Stage) -> list[Life]:
    """A subscriber's cable is pulled for some time."""
    stage.add_trio(per_s=6000, size=2000, persistent=stage.random.choice([0, 1]))
    stage.wait(0.5, 1.5)
    stage.block(2)
    stage.wait(0.2, 8.0)
    stage.unblock(2)
    stage.wait(2.0)
    return stage.finish(settle_s=1.0)


def partition(stage: Stage) -> list[Life]:
    """The network falls into two halves and heals, while a publisher of each half sends to subscribers of both."""
    stage.add_hosts(4)
    for host in (1, 3):
        stage.start(host, "subscribe")
    for host in (0, 2):
        stage.start_publisher(host, per_s=2000, size=2000, persistent=stage.random.choice([0, 1]))
    halves = {0: (2, 3), 1: (2, 3), 2: (0, 1), 3: (0, 1)}
    stage.wait(0.5, 1.5)
    for host, others in halves.items():
        stage.block(host, *others)
    stage.wait(0.2, 10.0)
    for host, others in halves.items():
        stage.unblock(host, *others)
    stage.wait(3.0)
    return stage.finish(settle_s=1.0)


def narrow_path(stage: Stage) -> list[Life]:
    """A subscriber's path becomes too narrow for data while small packets pass: it can make no progress."""
    stage.add_trio(per_s=6000, size=2000)
    stage.wait(0.5, 1.5)
    too_long = "INPUT -p udp -m length --length 1301:65535 -j DROP"
    stage.hosts[2].run("iptables", "-I", *too_long.split())
    stage.wait(14.0)
    return stage.finish()


NETWORKS = (
    Scenario(lossy_network, may_lose=False),
    Scenario(disorder, may_lose=False),
    Scenario(cut_off, may_lose=True),
    Scenario(partition, may_lose=True, held_s_max=1.0),
    Scenario(narrow_path, may_lose=True, held_s_max=12.0),
)
