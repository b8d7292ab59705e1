"""Bare UDP multicast, 44 datagrams for each system call."""

from .adapter import Udp

PEER = Udp(
    "udp-trains",
    "Not reliable. Messages laid end to end in datagrams of 1,472 B, 44 of them by one system call of Python with "
    "UDP_SEGMENT, sent once for all subscribers; received with UDP_GRO, as many at a time as the kernel has "
    "joined; a receive buffer of 32 MiB. The figure is the lowest rate that a subscriber received.",
    is_multicast=True,
    has_trains=True,
)
