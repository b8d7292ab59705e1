"""Bare UDP multicast, 44 datagrams for each system call."""

from .adapter import Udp

PEER = Udp(
    "udp-trains",
    "Not reliable. Messages laid end to end in datagrams of 1,472 B, 44 of them by one system call of Python with "
    "UDP_SEGMENT, sent once for all; received with UDP_GRO, as many at a time as the kernel has put together; a "
    "receive buffer of 32 MiB. The figure is what arrives at the one that gets least.",
    is_multicast=True,
    has_trains=True,
)
