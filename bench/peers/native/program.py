"""C programs, which are compiled on first use. This process becomes the program."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..base import PeerOptions
from ..build_cache import is_fresh, path_of

_SHARED = Path(__file__).with_name("workload.h")


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A C program in this folder."""

    name: str
    library: str | None = None
    header: str = "sys/socket.h"
    package: str = "libc6-dev"
    """Debian package that contains the header."""

    def missing(self) -> str | None:
        """Compile the program if it is not up to date. Return a text that tells what is missing for that, or None."""
        if is_fresh(self._binary, self._source) and is_fresh(self._binary, _SHARED):
            return None
        gcc = shutil.which("gcc")
        if gcc is None:
            return "gcc is not installed"
        header = [gcc, "-E", "-include", self.header, "-x", "c", os.devnull]
        if subprocess.run(header, capture_output=True, check=False).returncode != 0:
            return f"{self.package} is not installed"
        return self._build(gcc)

    def become(self, role: str, options: PeerOptions, more: Mapping[str, object], *flags: str) -> NoReturn:
        arguments: dict[str, object] = {
            "--group": options.group,
            "--interface": options.interface,
            "--port": options.port,
            "--size": options.size,
            "--timeout": options.timeout_s,
        }
        flat = [str(part) for pair in {**arguments, **more}.items() if pair[1] is not None for part in pair]
        sys.stdout.flush()
        os.execv(self._binary, [str(self._binary), role, *flat, *flags])

    @property
    def _source(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.c")

    @property
    def _binary(self) -> Path:
        return path_of(self.name)

    def _build(self, gcc: str) -> str | None:
        """Compile the program. Return a text that tells what went wrong, or None."""
        binary = self._binary
        binary.parent.mkdir(parents=True, exist_ok=True)
        # Compile to another name and rename, so that two runs at once both see a complete program.
        fresh = binary.with_name(f"{binary.name}.{os.getpid()}")
        libraries = [] if self.library is None else [f"-l{self.library}"]
        argv = [gcc, "-O2", "-Wall", "-Wextra", "-o", str(fresh), str(self._source), *libraries]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"it cannot be built: {done.stderr.strip()}"
        fresh.replace(binary)
        return None
