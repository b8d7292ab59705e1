"""NRL's libnorm, through a C program: see `libnorm_bench.c`."""

from typing import NoReturn

from ..base import PeerOptions
from .program import NativeProgram

_PROGRAM = NativeProgram("libnorm_bench", "norm", "normApi.h", "libnorm-dev")


class LibNorm:
    """Adapter of libnorm: this process becomes the C program."""

    name = "libnorm"
    settings = (
        "A C program on libnorm's API, one stream (or DATA objects), FEC blocks of 64 segments without parity, no "
        "congestion control; segments of 8,000 B, which IP fragments (1,428 B where packets are lost); buffers of 8 "
        "MiB for sockets and of 64 MiB for NORM; GRTT fixed at 1 ms. Flow control by watermarks that all "
        "subscribers confirm, four times per window of 8 MiB. It sends at a fixed rate: 95 % of a limited link's, "
        "or practically unlimited."
    )

    def missing(self) -> str | None:
        return _PROGRAM.missing()

    def pub(self, options: PeerOptions) -> NoReturn:
        more = {
            "--receivers": options.receivers,
            "--object": options.form,
            "--batch": options.batch,
            "--count": options.count,
            "--seconds": options.seconds,
            "--rate": options.rate_bps,
        }
        _become("pub", options, more)

    def sub(self, options: PeerOptions) -> NoReturn:
        _become("sub", options, {}, *([] if options.is_verified else ["--no-verify"]))

    def ping(self, options: PeerOptions) -> NoReturn:
        _become("ping", options, {"--count": options.count or 1, "--warm-up": options.warm_up})

    def echo(self, options: PeerOptions) -> NoReturn:
        _become("echo", options, {})


def _become(role: str, options: PeerOptions, more: dict[str, object], *flags: str) -> NoReturn:
    _PROGRAM.become(role, options, {"--segment-size": options.segment_bytes, **more}, *flags)


PEER = LibNorm()
