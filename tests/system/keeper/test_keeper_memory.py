"""A keeper whose disk stands still: it takes little into memory, and senders wait."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from keepers import DEADLINE_S, QUEUE, uri_of

from fjm2 import metrics
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.cell.outgoing import State
from fjm2.cell.replica import Remembered
from fjm2.keeper.keeper import Keeper, keeper_config
from fjm2.keeper.measured_disk import MeasuredDisk
from fjm2.keeper.store_directory import OpenStore, config_of
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.store.opening import open_journal
from fjm2.uri import BusConfig

pytestmark = pytest.mark.calm

MIB = 1 << 20
MESSAGES, MESSAGE_BYTES = 30 * 64, 16 << 10
WAITING_MAX = 12 * MIB
"""Bytes that may wait: 8 MiB, and what comes in one turn of the loop."""


class StandingDisk(MeasuredDisk):
    """A directory whose syncs wait for the test."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.goes_on = threading.Event()
        self.goes_on.set()

    def fdatasync(self, file: int) -> None:
        assert self.goes_on.wait(DEADLINE_S)
        super().fdatasync(file)


async def until(is_true: Callable[[], object], what: str) -> None:
    ends_at = asyncio.get_running_loop().time() + DEADLINE_S
    while not is_true():
        assert asyncio.get_running_loop().time() < ends_at, what
        await asyncio.sleep(0.01)


def test_a_disk_that_stands_still_holds_senders_back(tmp_path: Path, port: int) -> None:
    async def keep() -> None:
        with StandingDisk(tmp_path / "one") as disk:
            journal = open_journal(disk, config_of(256 * MIB), Random(1))
            states: list[State] = []
            bus = await Bus.open(keeper_config(uri_of(port)))
            keeper = Keeper(
                bus,
                OpenStore(disk, journal, Remembered()),
                members_wanted=1,
                on_state=lambda state, _: states.append(state),
            )
            await until(lambda: State.SERVING in states, "founded")
            sender = await Bus.open(BusConfig.from_uri(uri_of(port), BUS_DEFAULTS))
            lane = sender.lanes.first
            stream = sender.publisher.open_lane(lane, QUEUE)
            disk.goes_on.clear()
            writer = FrameWriter(7)
            for sequence in range(1, MESSAGES + 1):
                parts = writer.write_body(int(Kind.BYTES), b"", bytes(MESSAGE_BYTES), QUEUE, 0, 4, 1)
                stream.append(*with_ledger_number(parts, 7, 0, sequence))
            await until(lambda: bus.router.is_blocked, "held")
            for _ in range(30):
                await asyncio.sleep(0.02)
                assert journal.use.waiting < WAITING_MAX
            disk.goes_on.set()
            await until(lambda: keeper.status().messages == MESSAGES, "stored")
            assert f'fjm2_keeper_stored_messages_total{{keeper="{keeper.name}"}} {MESSAGES}\n' in metrics.render()
            await keeper.close()
            assert "fjm2_keeper" not in metrics.render()
            await sender.close(sender.close_deadline(0.5, 0.5))
            await bus.close()

    asyncio.run(keep())
