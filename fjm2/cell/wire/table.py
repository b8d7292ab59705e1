"""Commands by which publishers learn which cell there is, and which destinations it stores."""

import itertools
import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from .fields import FieldReader, check_count, pack, require
from .kinds import Kind

HASHES_MAX: Final = 150
"""Most hashes in a part: as many as a datagram of 1,400 bytes holds."""
PARTS_MAX: Final = 0xFFFF

_HASHES = struct.Struct(">BBHHHQQ")
_QUERY = struct.Struct(">BBHIQQ")
_U8 = struct.Struct(">B")
_U64 = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHashes:
    """A part of the destinations that a version of the table stores, by their hashes.

    They are those of durable and shared durable subscriptions. A queue needs no entry: all frames to queues are stored.
    """

    kind: ClassVar = Kind.TABLE_HASHES
    part: int
    """Number of the part, from 0 on."""
    parts: int
    cell_id: int
    version: int
    hashes: tuple[int, ...]
    """In ascending order over all parts, without doubles."""

    def encode(self) -> bytes:
        check_count("hashes", len(self.hashes), 0, HASHES_MAX)
        if not 0 <= self.part < self.parts or not _ascends(self.hashes):
            raise ValueError(f"part {self.part} of {self.parts}: expected a part with hashes in ascending order")
        head = pack(_HASHES, self.kind, 0, self.part, self.parts, len(self.hashes), self.cell_id, self.version)
        return head + b"".join(pack(_U64, each) for each in self.hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """A question for the table, of a version that its heartbeat named."""

    kind: ClassVar = Kind.TABLE_QUERY
    node_id: int
    """Node that asks."""
    cell_id: int
    version: int
    """Version that is wanted. A newer one serves as well."""

    def encode(self) -> bytes:
        return pack(_QUERY, self.kind, 0, 0, self.node_id, self.cell_id, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellQuestion:
    """A question of a new connection for the cell of the bus."""

    kind: ClassVar = Kind.CELL_QUESTION

    def encode(self) -> bytes:
        return bytes((self.kind,))


def table_parts(cell_id: int, version: int, hashes: list[int]) -> list[TableHashes]:
    """Return all parts of a table whose hashes are in ascending order, without doubles. An empty table has one part."""
    starts = range(0, max(len(hashes), 1), HASHES_MAX)
    return [
        TableHashes(
            part=part,
            parts=len(starts),
            cell_id=cell_id,
            version=version,
            hashes=tuple(hashes[start : start + HASHES_MAX]),
        )
        for part, start in enumerate(starts)
    ]


def decode_table_hashes(reader: FieldReader) -> TableHashes:
    """Read a part of a table."""
    _, zero, part, parts, count, cell_id, version = reader.unpack(_HASHES)
    require(not zero and part < parts and count <= HASHES_MAX)
    hashes = tuple(reader.unpack(_U64)[0] for _ in range(count))
    require(_ascends(hashes))
    return TableHashes(part=part, parts=parts, cell_id=cell_id, version=version, hashes=hashes)


def decode_table_query(reader: FieldReader) -> TableQuery:
    """Read a question for the table."""
    _, zero, more_zeros, node_id, cell_id, version = reader.unpack(_QUERY)
    require(not zero and not more_zeros)
    return TableQuery(node_id=node_id, cell_id=cell_id, version=version)


def decode_cell_question(reader: FieldReader) -> CellQuestion:
    """Read a question for the cell."""
    reader.unpack(_U8)
    return CellQuestion()


def _ascends(hashes: tuple[int, ...]) -> bool:
    return all(low < high for low, high in itertools.pairwise(hashes))
