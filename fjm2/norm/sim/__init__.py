"""A network in virtual time that runs the same `Engine` as a session does, for tests and to see how a group scales.

Everything in a network follows from its seed. Virtual seconds pass in milliseconds. Losses are where a test puts them:

    >>> from fjm2.norm.sim import Network
    >>> net = Network(seed=1)
    >>> pub, sub = net.sender(), net.receiver()
    >>> link = net.link(pub, sub).lose(segments=range(3, 7))
    >>> stream = pub.write(bytes(20_000))
    >>> net.run(until=5.0)
    >>> sub.received == bytes(20_000)
    True
    >>> sub.stats.nacks_sent, pub.stats.repair_segments_sent
    (1, 4)

Places form a tree. Nodes without a link meet at the `hub`, which is like a LAN.
"""

from fjm2.norm.sim.network import (
    GROUP,
    Link,
    Log,
    Network,
    Node,
    Place,
    Router,
)

__all__ = [
    "GROUP",
    "Link",
    "Log",
    "Network",
    "Node",
    "Place",
    "Router",
]
