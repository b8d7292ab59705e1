"""Entry points of the programs.

Importing what a program needs takes a moment. Ctrl-C during that time, a missing library and a full disk end the
program without a traceback.
"""

import errno
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from .base.interrupts import INTERRUPTED, end_at_interrupts, importing
from .base.missing_extras import end_for_lack_of

if TYPE_CHECKING:
    from click import Command

MODULES: Final[Mapping[str, str]] = {
    "fjm2": "fjm2.commands",
    "fjm2admin": "fjm2admin.cli",
    "fjm2-bench": "fjm2bench.cli",
    "fjm2d": "fjm2d.cli",
}
"""Module that has the function `main` of each program, by the program's name."""
_EXTRAS: Final = {"fjm2admin": "admin", "fjm2-bench": "bench", "fjm2d": "gateway"}
"""Extra of the package `fjm2` that each program needs, as in `pip install '.[gateway]'`."""


def _start(name: str) -> None:
    try:
        try:
            with importing():
                program = import_module(MODULES[name])
            _run(program.main, name)
        finally:
            end_at_interrupts()
    except KeyboardInterrupt:
        end_at_interrupts()
        # The command's coroutine may exist already, and never be awaited: nothing that the user has to hear of.
        warnings.simplefilter("ignore", RuntimeWarning)
        sys.exit(INTERRUPTED)
    except ImportError as error:
        if name not in _EXTRAS:
            raise
        end_for_lack_of(error, name, _EXTRAS[name])
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.exit(f"Error: {error.strerror}")


def _run(command: "Command", name: str) -> None:
    """Run a command and exit with its code. On its own, click says "Aborted!" at Ctrl-C, and exits with 1."""
    from click import Abort, ClickException

    try:
        code = command.main(prog_name=name, standalone_mode=False)
    except Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise SystemExit(1) from error
    except ClickException as error:
        error.show()
        code = error.exit_code
    sys.exit(code)


def fjm2() -> None:
    _start("fjm2")


def fjm2admin() -> None:
    _start("fjm2admin")


def fjm2_bench() -> None:
    _start("fjm2-bench")


def fjm2d() -> None:
    _start("fjm2d")
