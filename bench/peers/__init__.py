"""Other systems at the same task: each publishes, subscribes, pings and echoes, and prints the same result lines.

Each is used in its fastest form that is reliable and honest: it works across a network, loses nothing, and every
message is checked. Its `settings` describe that form. Bare UDP shows what the network can do: it may lose messages, and
the results say how many.
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
"""Systems without delivery guarantees. Their figure is the rate at which messages were received."""
SYSTEMS = (*RELIABLE, *RAW)


def load(system: str) -> Peer:
    """Return the adapter of a system. Its `missing` tells if the system is installed."""
    peer: Peer = import_module(f"{__name__}.{_MODULES[system]}").PEER
    return peer
