"""The cell of a bus: its keepers tell their status when they are asked."""

import asyncio
from collections.abc import Iterator
from typing import Final

from fjm2.base.errors import FJM2Error
from fjm2.base.quantities import counted, one_line
from fjm2.cell.outgoing import State
from fjm2.keeper.status import KeeperStatus, StatusFlag
from fjm2.keeper.survey import ask_keepers, is_manager

from .scene import Scene
from .verdict import Finding, fault, ok, unknown, warning

_ASK_S: Final = 0.6
"""Time for which answers are awaited. Keepers answer at once, and are asked three times."""
_ROOM_SHARE_MIN: Final = 0.1
"""Least share of a store's allowed size that messages may still take."""
_SLOW_SYNC_US: Final = 20_000
"""Mean time of a sync above which a disk is slow. One with a cache that survives a power cut takes 1 ms, a spinning one
10 ms."""
_WHY_SLOW: Final = "fjm2 keep bench DIRECTORY  # on that host; a disk with a cache that survives power cuts is faster"


def check_keepers(scene: Scene) -> Iterator[Finding]:
    """Ask all keepers of the bus, and yield what is wrong with their cell."""
    try:
        found = asyncio.run(ask_keepers(scene.bus, _ASK_S))
    except (FJM2Error, OSError) as error:
        yield unknown("keepers", f"cannot ask keepers: {error}")
        return
    yield from judge_keepers(found)


def judge_keepers(found: list[KeeperStatus]) -> Iterator[Finding]:
    """Yield what is wrong with the cell of these keepers."""
    if not found:
        yield ok("keepers", "no keeper answers: nothing is stored on this bus")
        return
    cells = {each.cell_id for each in found if each.cell_id}
    serving = [each for each in found if is_manager(each)]
    problems = [
        *_cell_problems(found, serving, cells),
        *(problem for each in found for problem in _problems_of(each)),
    ]
    yield from problems
    if not problems:
        yield ok(
            "keepers",
            f"{counted(len(found), 'keeper')}, and {_name(serving[0])} is the manager",
            keepers=len(found),
            epoch=serving[0].epoch,
        )


def _cell_problems(found: list[KeeperStatus], serving: list[KeeperStatus], cells: set[int]) -> Iterator[Finding]:
    names = ", ".join(_name(each) for each in found[:5])
    if len(cells) > 1:
        stranded = [each for each in found if each.state is State.STRANDED] or found[1:]
        yield fault(
            "keepers",
            "two_cells",
            f"{counted(len(cells), 'cell')} are on this bus ({names}): the smaller one serves nothing, and keeps to "
            "itself what it has",
            f"stop the keepers of one cell, such as {_name(stranded[0])}, or give them another bus",
            cells=sorted(f"{cell:016x}" for cell in cells),
        )
    if not serving:
        yield fault(
            "keepers",
            "no_majority",
            f"{counted(len(found), 'keeper')} ({names}), and none serves: a majority of the cell has to be there, and "
            "persistent messages wait",
            "fjm2 keep DIRECTORY  # where the other keepers of the cell were",
            keepers=len(found),
        )


def _problems_of(status: KeeperStatus) -> Iterator[Finding]:
    room = min(status.allowed_bytes - status.store_bytes, status.free_bytes) + status.store_bytes - status.live_bytes
    name = _name(status)
    if status.flags & StatusFlag.LACKS_ROOM:
        yield fault(
            "keepers",
            "store_too_full",
            f"the store of {name} has no room for what other keepers have on disk: it cannot be the manager",
            "give the keeper as many --store-bytes as the others have, or more, and start it again",
            store_bytes=status.store_bytes,
            allowed_bytes=status.allowed_bytes,
            free_bytes=status.free_bytes,
        )
    elif status.flags & StatusFlag.FULL:
        yield fault(
            "keepers",
            "store_full",
            f"the store of {name} is full: it takes no message until some are acknowledged",
            "start the consumers of what is stored, or give the keeper more --store-bytes",
            live_bytes=status.live_bytes,
            allowed_bytes=status.allowed_bytes,
        )
    elif room < _ROOM_SHARE_MIN * status.allowed_bytes:
        yield warning(
            "keepers",
            "store_nearly_full",
            f"the store of {name} has room for {room >> 20} MiB more, and its disk for "
            f"{status.free_bytes >> 20} MiB: when they are used up, persistent messages wait",
            "start the consumers of what is stored, or make room on the disk",
            room_bytes=room,
            free_bytes=status.free_bytes,
        )
    if status.state is State.AMNESIAC:
        yield warning(
            "keepers",
            "keeper_lost_store",
            f"{name} has lost what it kept, and fetches it from the others: it does not count meanwhile",
            "look into that host's log: its disk failed, or its directory was emptied",
        )
    if status.sync_us > _SLOW_SYNC_US:
        yield warning(
            "keepers",
            "slow_sync",
            f"the disk of {name} takes {status.sync_us / 1000:.0f} ms to sync: each awaited send takes longer",
            _WHY_SLOW,
            sync_us=status.sync_us,
        )


def _name(status: KeeperStatus) -> str:
    return f"{status.keeper_id.hex()[:8]} at {one_line(status.host)}"
