"""Other systems at the same task: each publishes, subscribes, pings and echoes, and prints the very same lines.

Each is in its fastest form that is reliable and honest: across a network, nothing lost, and everything checked. What
that is stands in its `settings`. Bare UDP is beside them to tell what the network can do: it may lose, and says how
much.
"""

from importlib import import_module

from .base import Peer

RELIABLE = ("activemq", "activemq-stomp", "cyclonedds", "jgroups", "libnorm", "mosquitto", "nats", "pyzmq", "zenoh")
RAW = ("udp-unicast", "udp-multicast", "udp-trains", "udp-c")
"""They promise nothing: what counts is what was received."""
SYSTEMS = (*RELIABLE, *RAW)


def load(system: str) -> Peer:
    """A peer's adapter. What it needs is looked for when it is asked: `Peer.missing`."""
    peer: Peer = import_module(f"{__name__}.{system.replace('-', '_')}_peer").PEER
    return peer
