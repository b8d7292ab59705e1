"""One-line error messages of programs that lack a library."""

import os
import sys
from typing import Final, NoReturn

_OWN: Final = ("fjm2", "fjm2d", "fjm2admin", "fjm2bench")
"""Our own packages. If one of them is missing, the installation is broken."""
_NOT_ON_WINDOWS: Final = frozenset({"fcntl", "grp", "pwd", "resource", "termios", "tty"})
"""Modules of the standard library that exist on Unix only."""


def lack_of(error: ImportError, program: str, extra: str) -> str:
    """Return a sentence that names the missing library and says how to install it.

    Raises `error` again if it does not come from a missing library but from our own code.
    """
    name = (error.name or "").partition(".")[0]
    if not name or name in _OWN:
        raise error
    if name in _NOT_ON_WINDOWS:
        return f"{program} needs {name}, which Python lacks on {sys.platform}: run it on Linux or macOS, or in WSL 2"
    return f"{program} needs {name}: {install_text(extra)}"


def install_text(extra: str) -> str:
    """Return how to install an extra. FJM2 is installed from a clone or a wheel: no package index has it."""
    return f"pip install '.[{extra}]' in a clone of FJM2, or pip install 'FILE.whl[{extra}]' with its wheel"


def end_for_lack_of(error: ImportError, program: str, extra: str) -> NoReturn:
    """End the program with a message about the missing library. A shell that only asks for completions gets no
    message."""
    lack = lack_of(error, program, extra)
    is_completing = f"_{program.replace('-', '_').upper()}_COMPLETE" in os.environ
    sys.exit(1 if is_completing else f"Error: {lack}")
