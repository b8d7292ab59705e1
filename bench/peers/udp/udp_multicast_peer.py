"""Bare UDP multicast, one datagram for each system call."""

from .adapter import Udp

PEER = Udp(
    "udp-multicast",
    "Not reliable. A message is one datagram (above 65,507 B, several), sent once for all by one system call of "
    "Python; a receive buffer of 32 MiB. The figure is what arrives at the one that gets least.",
    is_multicast=True,
)
