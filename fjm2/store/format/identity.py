"""The file `identity`: which keeper a store belongs to, and which life of it."""

from dataclasses import dataclass, replace
from struct import Struct

from ..disk import Disk, read_whole, replace_file
from ..errors import NewerFormatError
from .checksums import PREFERRED, algorithm_of, checksum_of

IDENTITY = "identity"
VERSION = 1
_FORMAT = Struct(">4sII16sQQ")
_CHECKED = 8
_PRODUCER_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Identity:
    """Content of the file `identity`."""

    keeper_id: bytes
    """128 random bits, drawn when the store was founded."""
    incarnation: int
    """Random number, drawn anew when the store may have lost something it confirmed."""
    cell_id: int = 0
    """Id of the cell that the keeper is a member of; 0 without one."""

    def with_incarnation(self, incarnation: int) -> "Identity":
        """Return the identity of the next life."""
        return replace(self, incarnation=incarnation)

    def of_cell(self, cell_id: int) -> "Identity":
        """Return the identity of a member of a cell."""
        return replace(self, cell_id=cell_id)

    def encode(self) -> bytes:
        """Return the content of the file."""
        content = _FORMAT.pack(b"", 0, VERSION, self.keeper_id, self.incarnation, self.cell_id)[_CHECKED:]
        checksum = checksum_of(PREFERRED, [content])
        return PREFERRED.magic(b"FJI") + checksum.to_bytes(4, "big") + content


def producer_id_of(identity: Identity) -> int:
    """Return the producer id of the outbox in a store."""
    return int.from_bytes(identity.keeper_id[:_PRODUCER_ID_BYTES], "big")


def parse_identity(data: bytes) -> Identity | None:
    """Return the identity in a file, or None if it is damaged. Raise NewerFormatError if a newer FJM2 wrote it."""
    if len(data) < _FORMAT.size:
        return None
    magic, checksum, version, keeper_id, incarnation, cell_id = _FORMAT.unpack_from(data)
    algorithm = algorithm_of(magic, b"FJI")
    if algorithm is None or checksum_of(algorithm, [data[_CHECKED:]]) != checksum:
        return None
    if version > VERSION:
        raise NewerFormatError(
            f"{IDENTITY}: format {version} at offset {_CHECKED}: expected {VERSION} at most; use a newer FJM2"
        )
    return Identity(keeper_id, incarnation, cell_id)


def read_identity(disk: Disk) -> Identity | None:
    """Return the identity of a store, or None if it is damaged or missing."""
    if IDENTITY not in disk.names():
        return None
    # A newer format may be longer.
    return parse_identity(read_whole(disk, IDENTITY, 4096))


def write_identity(disk: Disk, identity: Identity) -> None:
    """Write the identity. After a power cut either the old or the new one is there."""
    replace_file(disk, IDENTITY, identity.encode())
