"""Other systems at the same task: each publishes, subscribes, pings and echoes, and prints the very same lines.

Each is in its fastest form that is reliable and honest: across a network, nothing lost, and everything checked. What
that is stands in its `settings`. Bare UDP is beside them to tell what the network can do: it may lose, and says how
much.
"""

from importlib import import_module

from .base import Peer

_MODULES = {
    "activemq": "java.activemq_peer",
    "activemq-stomp": "activemq_stomp_peer",
    "cyclonedds": "cyclonedds_peer",
    "jgroups": "java.jgroups_peer",
    "libnorm": "native.libnorm_peer",
    "mosquitto": "mosquitto_peer",
    "nats": "nats_peer",
    "pyzmq": "pyzmq_peer",
    "zenoh": "zenoh_peer",
    "udp-unicast": "udp.udp_unicast_peer",
    "udp-multicast": "udp.udp_multicast_peer",
    "udp-trains": "udp.udp_trains_peer",
    "udp-c": "native.udp_c_peer",
}
RELIABLE = ("activemq", "activemq-stomp", "cyclonedds", "jgroups", "libnorm", "mosquitto", "nats", "pyzmq", "zenoh")
RAW = ("udp-unicast", "udp-multicast", "udp-trains", "udp-c")
"""They promise nothing: what counts is what was received."""
SYSTEMS = (*RELIABLE, *RAW)


def load(system: str) -> Peer:
    """A peer's adapter. What it needs is looked for when it is asked: `Peer.missing`."""
    peer: Peer = import_module(f"{__name__}.{_MODULES[system]}").PEER
    return peer
