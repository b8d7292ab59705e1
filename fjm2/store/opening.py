"""Opening a store: recovery, then the few writes that make what was recovered sure."""

from collections.abc import Callable
from enum import Enum
from random import Random

from fjm2.base.errors import ConfigError

from .config import RESERVED_SEGMENTS, StoreConfig
from .disk import Disk
from .errors import NoRoomError
from .format.batches import SEGMENT_HEAD_BYTES, SegmentHead, encode_segment_head
from .format.identity import Identity, producer_id_of, write_identity
from .journal import Journal
from .recovery import FAILED, Recovered, recover
from .runs import KEEPER_ID_BYTES
from .segments import Segment, Space
from .verification import Damage, forget_lost
from .writes import NO_ROOM, SegmentWrite

_PIECE_BYTES = 1 << 20
_INCARNATION_BITS = 64


class Owner(Enum):
    """Kinds of directories that hold a store."""

    KEEPER = "the store of a keeper"
    OUTBOX = "the outbox of a publisher"

    def check(self, place: object, found: Recovered) -> None:
        """Raise ConfigError if what was recovered in a directory is of the other kind."""
        other = _owner_of(found)
        if other not in (None, self):
            raise ConfigError(
                f"{place}: this directory is {other.value}: expected {self.value}, or an empty directory; nothing was "
                "changed. Name another directory"
            )


def _owner_of(found: Recovered) -> Owner | None:
    """Return the owner of a store; None if it holds nothing that tells. Only an outbox has messages of its own id."""
    if found.identity is None:
        return None
    contents, own_id = found.snapshot.contents, producer_id_of(found.identity)
    if any(ledger.producer_id == own_id for ledger in contents.ledgers):
        return Owner.OUTBOX
    return Owner.KEEPER if found.identity.cell_id or contents.ledgers or contents.promises else None


class DamagedStoreError(ConfigError):
    """A store in which something that was confirmed is damaged."""

    damages: tuple[Damage, ...] = ()
    """Damaged ranges."""


def open_journal(
    disk: Disk,
    config: StoreConfig,
    random: Random,
    *,
    keeper_id: bytes | None = None,
    accept_loss: bool = False,
    renew: bool = False,
    check: Callable[[Recovered], None] = lambda _: None,
) -> Journal:
    """Open the store in a directory, or found one in an empty directory.

    `keeper_id` is the id that the store must have, or gets if it is founded; None takes any. With `accept_loss` all of
    a damaged store is read, and it is opened without what is lost. `renew` draws a new incarnation: a peer has heard of
    batches that the store does not have. `check` raises ConfigError if what was recovered is not to be opened.
    `identity.incarnation` of the journal tells whether the store is amnesiac: it is new then.

    Raises DamagedStoreError and ConfigError before anything is changed on the disk, and ConfigError if the disk fails.
    """
    try:
        return _open(disk, config, random, keeper_id, accept_loss, renew, check)
    except OSError as error:
        name = error.filename or "the directory of the store"
        if error.errno in NO_ROOM:
            raise NoRoomError(f"{name}: {error.strerror}: expected room for a store; delete other files") from error
        raise ConfigError(
            f"{name}: {error.strerror}: expected a disk that can be read and written; look into the system's log"
        ) from error


def _open(
    disk: Disk,
    config: StoreConfig,
    random: Random,
    keeper_id: bytes | None,
    accept_loss: bool,
    renew: bool,
    check: Callable[[Recovered], None],
) -> Journal:
    found = recover(disk)
    check(found)
    if found.damages and not accept_loss:
        raise damaged(found.damages)
    if accept_loss:
        found.damages += forget_lost(disk, found.snapshot.contents, found.snapshot.segments)
    identity = found.identity
    if identity is not None and keeper_id not in (None, identity.keeper_id):
        raise ConfigError(f"identity: keeper id {identity.keeper_id.hex()} at offset 12: expected {keeper_id!r}")
    is_renewed = renew or found.has_failed or bool(found.damages)
    if identity is None or is_renewed:
        name = identity.keeper_id if identity else keeper_id or random.randbytes(KEEPER_ID_BYTES)
        cell = identity.cell_id if identity else 0
        identity = Identity(name, random.getrandbits(_INCARNATION_BITS), cell)
    _make_sure(disk, found)
    _repair(disk, found)
    if found.is_empty:
        write_identity(disk, identity)
    space = _space(disk, config, found)
    journal = Journal(config, random, identity, found.snapshot.contents, space, found.snapshot.position)
    journal.state = found.snapshot.state
    journal.recovered = found
    kept = [] if found.damages else found.checkpoints
    dead = {number for number in found.snapshot.dead if number in space.used} if kept else set()
    journal.housekeeping.restore(kept, found.checkpoint_number, dead, found.batches, found.batch_bytes)
    if is_renewed and not found.is_empty:
        _renew(disk, journal)
    journal.queue.plan()
    return journal


def damaged(damages: list[Damage]) -> DamagedStoreError:
    """Return the error of a store with damage."""
    more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
    error = DamagedStoreError(
        f"{damages[0]}{more}: expected what was confirmed; nothing was changed. Restore the files, or accept the loss"
    )
    error.damages = tuple(damages)
    return error


def _make_sure(disk: Disk, found: Recovered) -> None:
    """Bring to the medium what was only seen in the kernel's memory.

    The last life may have been killed before its last sync returned, or the sync failed and the kernel marked the pages
    as clean. Either way only the last batch and the directory are in doubt. Writing the same bytes again settles it.
    """
    if found.is_empty and not found.leftovers:
        return
    for name in found.leftovers:
        disk.unlink(name)
    disk.sync_directory()
    if found.last is not None:
        segment, offset, length = found.last
        for at in range(offset, offset + length, _PIECE_BYTES):
            size = min(_PIECE_BYTES, offset + length - at)
            disk.pwritev(segment.file, [disk.pread(segment.file, size, at)], at)
        disk.fdatasync(segment.file)


def _repair(disk: Disk, found: Recovered) -> None:
    """Mend what cost nothing: heads of segments, and checkpoints beside a good one.

    A store must not collect such damage: together with other damage it can cost something.
    """
    used = {segment.number for segment in found.snapshot.segments}
    for segment in found.bad_heads:
        head = bytes(SEGMENT_HEAD_BYTES)
        if segment.number in used:
            head = encode_segment_head(SegmentHead(segment.number, segment.salt, segment.first_lsn, segment.size))
        disk.pwritev(segment.file, [head], 0)
        disk.fdatasync(segment.file)
    for name in found.bad_checkpoints:
        disk.unlink(name)
    if found.bad_checkpoints:
        disk.sync_directory()


def _space(disk: Disk, config: StoreConfig, found: Recovered) -> Space:
    """Return the segments, with the reserve prepared."""
    space = Space(config)
    for segment in found.snapshot.segments:
        space.used[segment.number] = segment
        space.bytes += segment.size
    for segment in found.free:
        if segment.size == config.segment_bytes:
            space.free.append(segment)
            space.bytes += segment.size
        else:
            disk.close(segment.file)
            disk.unlink(segment.name)
    position = found.snapshot.position
    if position.segment is not None:
        space.active = space.used[position.segment]
        space.active.end = max(position.end, space.active.end)
    space.reset_plan()
    while len(space.free) < RESERVED_SEGMENTS + 1 and (wanted := space.prepare()) is not None:
        _prepare(disk, space, wanted)
    if not space.used and len(space.free) <= RESERVED_SEGMENTS:
        raise _no_room_to_begin(disk, config, space)
    return space


def _no_room_to_begin(disk: Disk, config: StoreConfig, space: Space) -> NoRoomError:
    """Remove what was made of a new store that would be full from the start, and return the error."""
    for segment in space.free:
        disk.close(segment.file)
        disk.unlink(segment.name)
    disk.sync_directory()
    least = (RESERVED_SEGMENTS + 1) * config.segment_bytes
    return NoRoomError(
        f"no room for a new store: expected {least} free bytes on the disk; delete other files, or choose a smaller "
        "store"
    )


def _prepare(disk: Disk, space: Space, segment: Segment) -> None:
    write = SegmentWrite(segment)
    while not (write.is_done or write.has_no_room):
        write.perform(disk)
    space.prepared(write.has_no_room)


def _renew(disk: Disk, journal: Journal) -> None:
    """Begin a new incarnation: first the mark, so that a power cut in between begins another one."""
    mark_failed(disk)
    journal.start_checkpoint(journal.state)
    write = journal.housekeeping.checkpoint
    while write is not None and not write.is_done:
        write.perform(disk)
        journal.housekeeping.handle_done(write)
        if write.has_no_room:
            raise NoRoomError("no room for a checkpoint: expected some free bytes on the disk; delete other files")
    write_identity(disk, journal.identity)
    disk.unlink(FAILED)
    disk.sync_directory()


def mark_failed(disk: Disk) -> None:
    """Leave a mark that the next life is a new incarnation. The disk may refuse."""
    disk.close(disk.open(FAILED))
    disk.sync_directory()
