"""NRL's libnorm, by a C program of our own that is built on first use: see `libnorm_bench.c`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from .base import PeerOptions
from .built import is_fresh, place

_SOURCE = Path(__file__).with_name("libnorm_bench.c")


class LibNorm:
    """The adapter: this process becomes the C program."""

    name = "libnorm"

    def missing(self) -> str | None:
        if is_fresh(place(_SOURCE.stem), _SOURCE):
            return None
        gcc = shutil.which("gcc")
        if gcc is None:
            return "gcc is not installed"
        header = [gcc, "-E", "-include", "normApi.h", "-x", "c", os.devnull]
        if subprocess.run(header, capture_output=True, check=False).returncode != 0:
            return "libnorm-dev is not installed"
        return _build(gcc)

    def pub(self, options: PeerOptions) -> NoReturn:
        more = ["--receivers", str(options.receivers), "--object", options.form, "--batch", str(options.batch)]
        if options.count is not None:
            more += ["--count", str(options.count)]
        if options.seconds is not None:
            more += ["--seconds", str(options.seconds)]
        if options.rate_bps is not None:
            more += ["--rate", str(options.rate_bps)]
        _become("pub", options, *more)

    def sub(self, options: PeerOptions) -> NoReturn:
        _become("sub", options, *([] if options.is_verified else ["--no-verify"]))

    def ping(self, options: PeerOptions) -> NoReturn:
        _become("ping", options, "--count", str(options.count or 1), "--warm-up", str(options.warm_up))

    def echo(self, options: PeerOptions) -> NoReturn:
        _become("echo", options)


def _become(role: str, options: PeerOptions, *more: str) -> NoReturn:
    binary = place(_SOURCE.stem)
    arguments = {
        "--group": options.group,
        "--interface": options.interface,
        "--port": options.port,
        "--size": options.size,
        "--segment-size": options.segment_bytes,
        "--timeout": options.timeout_s,
    }
    flat = [str(part) for pair in arguments.items() for part in pair]
    sys.stdout.flush()
    os.execv(binary, [str(binary), role, *flat, *more])


def _build(gcc: str) -> str | None:
    """What went wrong, if anything."""
    binary = place(_SOURCE.stem)
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Made beside it and moved, so that two runs at once both see a whole program.
    fresh = binary.with_name(f"{binary.name}.{os.getpid()}")
    argv = [gcc, "-O2", "-Wall", "-Wextra", "-o", str(fresh), str(_SOURCE), "-lnorm"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"it cannot be built: {done.stderr.strip()}"
    fresh.replace(binary)
    return None


PEER = LibNorm()
