"""Tests of what an outbox remembers of messages that keepers have stored, on a disk whose power is cut."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from fjm2.base.ledger import Ledger
from fjm2.outbox.drive.directory import open_outbox
from fjm2.outbox.drive.disk_outbox import DiskOutbox
from fjm2.outbox.outbox import Outbox, Turn
from fjm2.outbox.outbox_store import OutboxStore, recover_lane
from fjm2.store.config import Need, StoreConfig
from fjm2.store.opening import open_journal
from fjm2.store.sim_disk import PowerCutError, SimDisk

CONFIG = StoreConfig(segment_bytes=8 << 10, store_bytes_max=64 << 10)
LANES = (0, 1)
SIZE = 100
FRAME = bytes(SIZE)
BYTES = 8 << 20


class Life:
    """An outbox on a disk, and all of its lanes open at a cell."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.journal = open_journal(disk, CONFIG, Random(1))
        store = OutboxStore(self.journal, self.journal.append)
        self.outbox: Outbox[int] = Outbox(store, {lane: recover_lane(self.journal, disk, lane) for lane in LANES})
        self.outbox.handle_cell()
        self.settle()

    def settle(self) -> None:
        """Have everything written."""
        self.outbox.flush()
        while (write := self.journal.poll_write()) is not None:
            write.perform(self.disk)
            self.outbox.handle_synced(self.journal.handle_synced(write), [], 0.0)
            self.outbox.flush()

    def send(self, count: int, lane: int = 0) -> None:
        """Accept messages and send them."""
        turn = Turn(0, 0.0)
        for _ in range(count):
            self.outbox.accept(turn, lane, FRAME)
        self.outbox.add(turn)
        self.settle()
        state = self.outbox.lanes[lane]
        while state.next_place() is not None:
            state.note_sent(1)

    def store(self, through: int, lane: int = 0) -> None:
        """Let keepers confirm messages."""
        self.outbox.handle_stored(self.outbox.lanes[lane].ledger, through)

    def remember(self, need: Need = Need.MESSAGE) -> None:
        self.outbox.remember(need)
        self.settle()

    @property
    def numbers(self) -> tuple[int, int]:
        """Numbers of the last message that is stored, and of the last one."""
        lane = self.outbox.lanes[0]
        return lane.released, lane.durable


def after_power_cut(life: Life) -> Life:
    life.disk.power_cut()
    return Life(life.disk)


@pytest.fixture
def life() -> Life:
    """Return an outbox with five messages on their way."""
    life = Life(SimDisk(1))
    life.send(5)
    return life


def test_what_was_remembered_is_known_after_a_power_cut(life: Life) -> None:
    life.send(7, lane=1)
    for through in (3, 4):
        life.store(through)
        life.store(through + 1, lane=1)
        life.remember()
    after = after_power_cut(life)
    assert after.numbers == (4, 5)
    assert after.outbox.waiting == 3


def test_what_was_not_remembered_is_asked_about(life: Life) -> None:
    ended = life.outbox.lanes[0].ledger
    life.store(3)
    after = after_power_cut(life)
    assert after.numbers == (0, 5)
    ask = after.outbox.poll_ask()
    assert ask is not None
    assert ask.ended == ended
    after.outbox.handle_final(ended, 3, 0.0)
    after.remember()
    assert after_power_cut(after).numbers == (3, 5)


def cuts() -> Iterator[tuple[bool, int]]:
    """Yield the results of power cuts at each call of the write that remembers."""
    for seed in range(20):
        life = Life(SimDisk(seed))
        life.send(5)
        life.store(3)
        life.disk.cut_at = life.disk.calls + 1 + seed % 2
        is_cut = False
        try:
            life.remember()
        except PowerCutError:
            is_cut = True
        life.disk.cut_at = None
        released, accepted = after_power_cut(life).numbers
        assert accepted == 5
        yield is_cut, released


def test_a_power_cut_while_it_is_written_leaves_the_old_or_the_new() -> None:
    results = list(cuts())
    assert all(is_cut for is_cut, _ in results)
    assert {released for _, released in results} == {0, 3}


def test_a_group_of_messages_tells_it_too(life: Life) -> None:
    life.store(3)
    before = life.journal.lsn
    life.send(1)
    assert life.journal.lsn == before + 1, "nothing more is synced"
    life.remember()
    assert life.journal.lsn == before + 1
    assert after_power_cut(life).numbers == (3, 6)


def test_nothing_is_written_that_the_disk_knows(life: Life) -> None:
    before = life.journal.lsn
    life.remember()
    assert life.journal.lsn == before
    life.store(3)
    life.settle()
    assert life.journal.lsn == before, "it waits for messages, or for `remember`"
    for _ in range(3):
        life.remember()
    assert life.journal.lsn == before + 1


def test_room_of_what_is_stored_is_free_after_a_restart(life: Life) -> None:
    life.store(3)
    life.remember()
    after = after_power_cut(life)
    ledger = Ledger(after.outbox.store.producer_id, 0, 0)
    assert list(after.journal.live(ledger, 1, 100)) == [(4, 6)]


def test_a_full_outbox_remembers_at_its_end(life: Life) -> None:
    while not life.outbox.is_full:
        life.send(20)
    life.store(7)
    life.remember()
    assert life.outbox.store.stored(0) == 0, "the reserve is left to lives"
    life.remember(Need.URGENT)
    assert after_power_cut(life).numbers[0] == 7


WAIT_S = 10.0


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)


async def on_its_way(directory: Path) -> DiskOutbox:
    """Return an outbox on a real disk, with five messages that were sent."""
    outbox = DiskOutbox(open_outbox(directory, BYTES), 1.0)
    outbox.core.handle_cell()
    await asyncio.gather(*(outbox.accept(0, FRAME) for _ in range(5)))
    lane = outbox.core.lanes[0]
    await until(lane.next_place)
    lane.note_sent(5)
    return outbox


def stored_in(directory: Path) -> int:
    opened = open_outbox(directory, BYTES)
    opened.disk.shut()
    return opened.recovered[0].released


@pytest.mark.parametrize("is_writing", [False, True])
def test_a_close_returns_when_the_disk_has_what_is_stored(tmp_path: Path, is_writing: bool) -> None:
    async def closed() -> None:
        outbox = await on_its_way(tmp_path)
        outbox.core.handle_stored(outbox.core.lanes[0].ledger, 3)
        if is_writing:
            outbox.accept(0, FRAME)
            await asyncio.sleep(0)
            outbox.core.handle_stored(outbox.core.lanes[0].ledger, 4)
        await outbox.close()

    asyncio.run(closed())
    assert stored_in(tmp_path) == 3 + is_writing


def test_the_disk_has_soon_what_is_stored(tmp_path: Path) -> None:
    async def stored() -> None:
        outbox = await on_its_way(tmp_path)
        outbox.core.handle_stored(outbox.core.lanes[0].ledger, 3)
        await until(lambda: outbox.core.store.stored(0) == 3)  # nobody calls the outbox
        await outbox.close()

    asyncio.run(stored())
