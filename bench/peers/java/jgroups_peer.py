"""JGroups over UDP multicast: see `JGroupsBench.java`."""

import socket
from typing import NoReturn

from ...workload.results import PingResult, PubResult
from ..base import Deadline, PeerOptions
from .program import WARM_UP_S, JavaProgram

_PROGRAM = JavaProgram("JGroupsBench", "libjgroups-java", ("jgroups",), ("-Djava.net.preferIPv4Stack=true",))

_DATAGRAM_BYTES, _SMALL_DATAGRAM_BYTES = 64_000, 1428
"""Sizes of bundles: about as large as UDP allows, or fitting into one packet where packets are lost."""
_CREDITS_MAX_BYTES = 2_000_000
"""Largest credit of the flow control. With more, a busy subscriber drops datagrams, and repairs slow the run down by a
factor of ten or more."""
_RECEIVE_BUFFER_BYTES = 32 << 20


class JGroups:
    """Adapter of JGroups."""

    name = "jgroups"
    settings = (
        "JGroups 2.12, UDP multicast; NAKACK (repairs by multicast, first requested after 20 ms), STABLE every 8 "
        "MB, bundles of 64,000 B, which IP fragments (1,428 B where packets are lost); receive buffers of up to 32 "
        "MB. Flow control by MFC with 2 MB of credit, or the receive buffer that the kernel grants if that is less: "
        "with more credit, a busy subscriber drops messages that have to be repaired, and a run takes tens of times "
        "as long. No failure detection; members do not receive their own messages. Before each timed run, messages "
        f"are sent for {WARM_UP_S:g} s that do not count, so that all code is compiled."
    )

    def missing(self) -> str | None:
        return _PROGRAM.missing()

    def pub(self, options: PeerOptions) -> PubResult:
        more = {**_place(options), "--receivers": options.receivers}
        if options.count is not None:
            more["--count"] = options.count
        if options.seconds is not None:
            more |= {"--seconds": options.seconds, "--warm-up-seconds": WARM_UP_S}
        return PubResult(**_PROGRAM.run("pub", options, more, Deadline(options.timeout_s)))

    def sub(self, options: PeerOptions) -> NoReturn:
        _PROGRAM.become("sub", options, {**_place(options), **({} if options.is_verified else {"--no-verify": 1})})

    def ping(self, options: PeerOptions) -> PingResult:
        more = {**_place(options), "--count": options.count or 1, "--warm-up": options.warm_up}
        return PingResult(**_PROGRAM.run("ping", options, more, Deadline(options.timeout_s)))

    def echo(self, options: PeerOptions) -> NoReturn:
        _PROGRAM.become("echo", options, _place(options))


def _place(options: PeerOptions) -> dict[str, object]:
    datagram = _SMALL_DATAGRAM_BYTES if options.segment_bytes <= _SMALL_DATAGRAM_BYTES else _DATAGRAM_BYTES
    more = {"--datagram": datagram, "--credits": min(_CREDITS_MAX_BYTES, _granted_buffer_bytes())}
    return {"--group": options.group, "--interface": options.interface, **more}


def _granted_buffer_bytes() -> int:
    """Return the size of receive buffer that the kernel grants to ordinary users."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # it reports twice the size


PEER = JGroups()
