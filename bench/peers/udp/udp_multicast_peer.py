"""Bare UDP multicast, one datagram for each system call."""

from .adapter import Udp

PEER = Udp(
    "udp-multicast",
    "Not reliable. A message is one datagram (above 65,507 B, several), sent once for all subscribers by one "
    "system call of Python; a receive buffer of 32 MiB. The figure is the lowest rate that a subscriber received.",
    is_multicast=True,
)
