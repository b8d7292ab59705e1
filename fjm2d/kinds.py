"""The kinds of datagrams between gateways: the one vocabulary that the tunnel and the forwarder share."""

from enum import IntEnum


class Kind(IntEnum):
    """Kind of a tunnel datagram: the low four bits of its first byte."""

    INITIATION = 1
    RESPONSE = 2
    NORM = 3
    """A datagram to multicast to its group."""
    FEEDBACK = 4
    """A NACK or ACK, to pass on by unicast to the sender that it is for."""
    CONTROL = 5
    """A message from forwarder to forwarder."""
    PROBE = 6
    """A message from tunnel to tunnel: liveness, round trip, loss, path MTU."""
    NORM_PART = 8 | NORM
    FEEDBACK_PART = 8 | FEEDBACK
    CONTROL_PART = 8 | CONTROL
