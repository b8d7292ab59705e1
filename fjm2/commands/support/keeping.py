"""Parts of the commands that work on a keeper's store: sizes, and errors with their exit codes."""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

import click

from fjm2.base.errors import ConfigError, JournalError
from fjm2.store.errors import NewerFormatError, NoRoomError, StoreInUseError, WrongOwnerError
from fjm2.store.opening import DamagedStoreError


class InUse(click.ClickException):
    """Another process has the store open."""

    exit_code = 3


class Damaged(click.ClickException):
    """The store is damaged."""

    exit_code = 4


class WrongOwner(click.ClickException):
    """Somebody else owns the store, or may change it."""

    exit_code = 5


class NewerFormat(click.ClickException):
    """A newer version wrote the store."""

    exit_code = 6


class DiskFull(click.ClickException):
    """The disk has no room to begin."""

    exit_code = 7


class DiskFailed(click.ClickException):
    """The disk failed, so that nobody knows what is on it."""

    exit_code = 8


_KINDS: Final[tuple[tuple[type[Exception], type[click.ClickException]], ...]] = (
    (StoreInUseError, InUse),
    (DamagedStoreError, Damaged),
    (WrongOwnerError, WrongOwner),
    (NewerFormatError, NewerFormat),
    (NoRoomError, DiskFull),
    (JournalError, DiskFailed),
)
DEFAULT_STORE_BYTES: Final = "10GiB"
_SIZE: Final = re.compile(r"([0-9]+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@contextlib.contextmanager
def store_errors() -> Iterator[None]:
    """Give errors of a store their exit codes."""
    try:
        yield
    except (ConfigError, JournalError) as error:
        kind = next((kind for cause, kind in _KINDS if isinstance(error, cause)), click.ClickException)
        advice = ": fjm2 keep check DIRECTORY --accept-loss" if kind is Damaged else ""
        raise kind(f"{error}{advice}") from error


class Size(click.ParamType[int]):
    """A number of bytes from a least one on: 65536, 64k, 16MiB or 10GB."""

    name = "SIZE"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value}: expected bytes, as in 65536, 64k or 16MiB", param, ctx)
        base = 1000 if (match[3] or "").lower() == "b" else 1024
        power: int = _POWERS[match[2].lower()]
        size = int(match[1])
        for _ in range(power):
            size *= base
        if not self._least <= size < 1 << 50:
            self.fail(f"{value}: expected {self._least} or more bytes", param, ctx)
        return size
