"""Sections: the parts of the decided state, each encoded by its owner.

A snapshot is an entry of the decision log whose records are sections. It stands for the entry at its index and all
before it. So it is stored, sent and fetched like any other entry. A member that does not know a section refuses the
whole snapshot: it would decide differently.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from ..wire.records import SectionRecord

PIECE_BYTES: Final = 8 << 20
"""Bytes of a section in one record. A longer section has several."""


class Section(Protocol):
    """A part of the decided state."""

    @property
    def name(self) -> str:
        """Name with the version of the format, such as "table/1"."""
        ...

    @property
    def index(self) -> int | None:
        """Index of the last entry that the section includes; None for one that goes with the log."""
        ...

    def encode(self, index: int) -> bytes:
        """Return the state after the entry at an index."""
        ...

    def decode(self, data: bytes) -> Any | None:
        """Return the state that `data` encode, or None if they are malformed. Change nothing."""
        ...

    def adopt(self, state: Any, index: int, now: float) -> None:
        """Take a state that `decode` returned in place of one's own."""
        ...


def encode_sections(sections: Sequence[Section], index: int) -> tuple[SectionRecord, ...]:
    """Return the records of a snapshot at an index."""
    return tuple(record for section in sections for record in _pieces(section.name, section.encode(index)))


def _pieces(name: str, data: bytes) -> Iterator[SectionRecord]:
    for at in range(0, max(1, len(data)), PIECE_BYTES):
        yield SectionRecord(name, data[at : at + PIECE_BYTES])


def decode_sections(sections: Sequence[Section], records: Sequence[SectionRecord]) -> list[tuple[Section, Any]] | None:
    """Return each section with its state, or None if one is missing, unknown or malformed."""
    parts: dict[str, list[bytes]] = {section.name: [] for section in sections}
    for record in records:
        if record.name not in parts:
            return None
        parts[record.name].append(record.data)
    found = []
    for section in sections:
        state = section.decode(b"".join(parts[section.name])) if parts[section.name] else None
        if state is None:
            return None
        found.append((section, state))
    return found
