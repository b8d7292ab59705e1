"""Bare UDP multicast from C: see `udp_bench.c`."""

from typing import NoReturn

from ..base import PeerOptions
from .program import NativeProgram

_PROGRAM = NativeProgram("udp_bench")


class UdpC:
    """Adapter of bare UDP in C: this process becomes the C program."""

    name = "udp-c"
    settings = (
        "Not reliable. A C program: a message is one datagram (above 65,507 B, several), 64 of them by one call of "
        "sendmmsg or recvmmsg, sent once for all subscribers; a receive buffer of 32 MiB. The figure is the lowest "
        "rate that a subscriber received."
    )

    def missing(self) -> str | None:
        return _PROGRAM.missing()

    def pub(self, options: PeerOptions) -> NoReturn:
        how_much = {"--count": options.count, "--seconds": options.seconds}
        _become("pub", options, {"--receivers": options.receivers, **how_much})

    def sub(self, options: PeerOptions) -> NoReturn:
        _become("sub", options, {}, *([] if options.is_verified else ["--no-verify"]))

    def ping(self, options: PeerOptions) -> NoReturn:
        _become("ping", options, {"--count": options.count or 1, "--warm-up": options.warm_up})

    def echo(self, options: PeerOptions) -> NoReturn:
        _become("echo", options, {})


def _become(role: str, options: PeerOptions, more: dict[str, object], *flags: str) -> NoReturn:
    _PROGRAM.become(role, options, {"--publisher": options.publisher, **more}, *flags)


PEER = UdpC()
