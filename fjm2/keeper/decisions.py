"""Entries of the decision log as frames, which all members and clients of a cell hear."""

from time import time_ns
from typing import Final

from fjm2.bus.ledgers.destinations import DECISIONS
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.header import Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number

PRIORITY: Final = 4
"""Priority of entries. They travel in the first lane, whose node also sends the heartbeats: a keeper that has heard
them may answer at length."""


def entry_frame(writer: FrameWriter, cell_id: int, epoch: int, index: int, body: bytes) -> Parts:
    """Return an entry of a cell's decision log as a frame with a checksum."""
    now_ms = time_ns() // 1_000_000
    parts = writer.write_body(int(Kind.BYTES), b"", body, DECISIONS, 0, PRIORITY, now_ms)
    return with_ledger_number(parts, cell_id, epoch, index)
