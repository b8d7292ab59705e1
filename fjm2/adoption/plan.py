"""The plan of an adoption: which message of the earlier cell has which place in the journal's outbox.

An outbox numbers the messages of each lane from 1 on, and remembers how many it has accepted. The plan lists, in the
same order, where each of them lies in the stores of the earlier cell. It is on disk before the first of them is
accepted, and what was accepted never changes its place. So the next run knows what is done, whenever this one ends.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger, carrier_of
from fjm2.base.ranges import RangeSet

LANES: Final = 3
"""Lanes of a bus."""
OUTBOX: Final = "outbox"
"""Folder of the outbox in the folder of an adoption."""
_NAME: Final = "plan"
_VERSION: Final = 1


class Part(NamedTuple):
    """The messages first, ..., end - 1 of a ledger of the earlier cell."""

    ledger: Ledger
    first: int
    end: int


class Plan:
    """Messages in the order of their places, by lane."""

    def __init__(self, cell_id: int, lanes: Iterable[Iterable[Part]] = ((), (), ())) -> None:
        self.cell_id: Final = cell_id
        self.lanes: Final = [list(parts) for parts in lanes]

    def count(self, lane: int) -> int:
        """Return the number of messages of a lane."""
        return sum(end - first for _, first, end in self.lanes[lane])

    @property
    def total(self) -> int:
        """Number of messages of all lanes."""
        return sum(map(self.count, range(LANES)))

    def extended(self, accepted: Sequence[int], found: Iterable[Part]) -> "Plan":
        """Return the plan of the next run: what was accepted keeps its place, and what was found follows.

        What an earlier run had planned and did not get to is left out, unless it is found again.
        """
        lanes = [list(self.within(lane, 0, count)) for lane, count in enumerate(accepted)]
        known: dict[Ledger, RangeSet] = {}
        for parts in lanes:
            for ledger, first, end in parts:
                known.setdefault(ledger, RangeSet()).add(first, end)
        for ledger, first, end in found:
            gaps = known.get(ledger, RangeSet()).gaps(first, end)
            if carrier_of(ledger.lane) < LANES:  # no writer has others, but a store may
                lanes[carrier_of(ledger.lane)] += [Part(ledger, low, high) for low, high in gaps]
        return Plan(self.cell_id, lanes)

    def within(self, lane: int, after: int, through: int) -> Iterator[Part]:
        """Yield the messages of a lane behind a place, through another one."""
        place = 0
        for ledger, first, end in self.lanes[lane]:
            low, high = max(first, first + after - place), min(end, first + through - place)
            if low < high:
                yield Part(ledger, low, high)
            place += end - first


def read_plan(folder: Path, cell_id: int) -> Plan:
    """Return the plan in a folder, or an empty one if there is none. Raise ConfigError if it is damaged, or belongs to
    another cell."""
    path = folder / _NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Plan(cell_id)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: expected the plan of an adoption") from error
    plan = _decode(data)
    if plan is None:
        raise ConfigError(
            f"{path}: damaged, or of a newer version: expected the plan of an adoption; nothing was sent. Restore it"
        )
    if plan.cell_id != cell_id:
        raise ConfigError(
            f"{path}: belongs to the cell {plan.cell_id:016x}: expected {cell_id:016x}, as of the store; name another "
            "folder by --journal"
        )
    return plan


def write_plan(folder: Path, plan: Plan) -> None:
    """Write a plan so that it is there as a whole, or the one before is. Raise OSError if that is not possible."""
    path, new = folder / _NAME, folder / f"{_NAME}.new"
    body = json.dumps({"cell": plan.cell_id, "lanes": [[[*each[0], *each[1:]] for each in one] for one in plan.lanes]})
    text = f"{_VERSION} {zlib.crc32(body.encode()):08x} {body}\n"
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder_file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder_file)
    finally:
        os.close(folder_file)


def _decode(data: bytes) -> Plan | None:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        version, checksum, body = data.decode().split(" ", 2)
        if int(version) == _VERSION and int(checksum, 16) == zlib.crc32(body.rstrip("\n").encode()):
            told = json.loads(body)
            lanes = [[Part(Ledger(*one[:3]), *one[3:]) for one in parts] for parts in told["lanes"]]
            if len(lanes) == LANES:
                return Plan(told["cell"], lanes)
    return None
