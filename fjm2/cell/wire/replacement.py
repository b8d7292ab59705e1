"""The command of a spare that is to take the place of a member whose disk is lost for good."""

import struct
from dataclasses import dataclass
from typing import ClassVar

from .fields import FieldReader, Member, check_keeper_id, pack, read_members, require
from .kinds import Kind

_REPLACEMENT = struct.Struct(">BBHIQ16s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A spare's word that an operator has given a member up. The manager need not wait for a minute of absence."""

    kind: ClassVar = Kind.REPLACEMENT
    cell_id: int
    lost: bytes
    """Keeper id of the member that does not come back."""
    spare: Member

    def encode(self) -> bytes:
        return pack(_REPLACEMENT, self.kind, 0, 0, 0, self.cell_id, check_keeper_id(self.lost)) + self.spare.encode()


def decode_replacement(reader: FieldReader) -> Replacement:
    """Read a spare's word."""
    _, zero, more_zeros, even_more, cell_id, lost = reader.unpack_any(_REPLACEMENT)
    require(not zero and not more_zeros and not even_more)
    return Replacement(cell_id=cell_id, lost=lost, spare=read_members(reader, 1)[0])
