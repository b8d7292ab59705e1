"""NORM sessions with the settings of a bus URI."""

from fjm2.norm import Session
from fjm2.uri import BusConfig


def open_session(bus: BusConfig) -> Session:
    """Return a session on this bus that sends and receives."""
    return Session(
        bus.group,
        bus.port,
        interface=bus.interface,
        sender=bus.sender,
        receiver=bus.receiver,
        ttl=bus.ttl,
        dscp=bus.dscp,
        loopback=bus.loopback,
    )
