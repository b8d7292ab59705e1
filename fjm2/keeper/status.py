"""The status of a keeper on the wire: a NORM_CMD(APPLICATION) of kind 10, sent when somebody
asks, and every few seconds.

Big-endian: u8 kind · u8 state · u8 flags (1 full, 2 lacks room) · u8 bytes of the host name · u32 process id · u32
epoch · u32 configuration · u64 cell id · 16 bytes keeper id · u64 incarnation, committed index, last index, table
version, durable LSN, messages on disk in open ledgers, bytes of the store, bytes allowed, bytes of live messages,
bytes that wait, bytes free on the disk · u32 mean of the recent syncs in microseconds · u32 conflicts · host name.
"""

import struct
from dataclasses import asdict, dataclass
from enum import IntFlag
from typing import Any, Final

from fjm2.cell.outgoing import State
from fjm2.cell.wire.kinds import KEEPER_STATUS

STATUS_S: Final = 5.0
"""Interval at which each keeper tells its status unasked, as members announce themselves."""
STATUS_TYPE: Final = 18
"""Type of the NORM_CMD(ACK_REQ) that asks for it."""
_LAYOUT: Final = struct.Struct(">BBBBIIIQ16sQQQQQQQQQQQII")
_HOST_BYTES_MAX: Final = 64
_U32_MAX: Final = (1 << 32) - 1


class StatusFlag(IntFlag):
    """Flags of a status."""

    FULL = 1
    """The store takes no messages."""
    LACKS_ROOM = 2
    """The store has no room for what other keepers have on disk, so that its keeper cannot be the manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStatus:
    """State of one keeper."""

    state: State
    flags: int
    pid: int
    epoch: int
    configuration: int
    cell_id: int
    keeper_id: bytes
    incarnation: int
    committed: int
    """Index of the last decision that is known to be committed."""
    last_index: int
    table_version: int
    durable_lsn: int
    messages: int
    """Messages on disk or counted, without a gap, in all ledgers that are open."""
    store_bytes: int
    allowed_bytes: int
    live_bytes: int
    waiting_bytes: int
    free_bytes: int
    """Room on the disk, for whatever program comes first."""
    sync_us: int
    """Time that recent syncs of the disk took on average, in microseconds."""
    conflicts: int
    """Number of times that another cell was heard."""
    host: str

    def encode(self) -> bytes:
        """Return the command."""
        host = self.host.encode()[:_HOST_BYTES_MAX]
        head = _LAYOUT.pack(
            KEEPER_STATUS,
            self.state.value,
            self.flags,
            len(host),
            self.pid,
            self.epoch,
            self.configuration,
            self.cell_id,
            self.keeper_id,
            self.incarnation,
            self.committed,
            self.last_index,
            self.table_version,
            self.durable_lsn,
            self.messages,
            self.store_bytes,
            self.allowed_bytes,
            self.live_bytes,
            self.waiting_bytes,
            self.free_bytes,
            min(self.sync_us, _U32_MAX),
            self.conflicts,
        )
        return head + host

    def as_dict(self) -> dict[str, Any]:
        """Return the status for JSON."""
        told = asdict(self)
        flags = StatusFlag(told.pop("flags"))
        is_told = {"is_full": StatusFlag.FULL in flags, "lacks_room": StatusFlag.LACKS_ROOM in flags}
        names = {"state": self.state.name.lower(), "keeper_id": self.keeper_id.hex(), "cell_id": f"{self.cell_id:016x}"}
        return {**told, **names, "incarnation": f"{self.incarnation:016x}", **is_told}


def decode_status(content: bytes) -> KeeperStatus | None:
    """Return the status that a command encodes, or None if it is malformed. Later versions may append to it."""
    if len(content) < _LAYOUT.size or content[0] != KEEPER_STATUS:
        return None
    _, state, flags, host_bytes, pid, epoch, configuration, cell_id, keeper_id, *numbers = _LAYOUT.unpack_from(content)
    host = content[_LAYOUT.size : _LAYOUT.size + host_bytes]
    if state not in _STATES or len(host) < host_bytes:
        return None
    incarnation, committed, last_index, table_version, durable_lsn, messages, *sizes, sync_us, conflicts = numbers
    store_bytes, allowed_bytes, live_bytes, waiting_bytes, free_bytes = sizes
    return KeeperStatus(
        state=State(state),
        flags=flags,
        pid=pid,
        epoch=epoch,
        configuration=configuration,
        cell_id=cell_id,
        keeper_id=keeper_id,
        incarnation=incarnation,
        committed=committed,
        last_index=last_index,
        table_version=table_version,
        durable_lsn=durable_lsn,
        messages=messages,
        store_bytes=store_bytes,
        allowed_bytes=allowed_bytes,
        live_bytes=live_bytes,
        waiting_bytes=waiting_bytes,
        free_bytes=free_bytes,
        sync_us=sync_us,
        conflicts=conflicts,
        host=host.decode(errors="replace"),
    )


_STATES: Final = frozenset(state.value for state in State)
