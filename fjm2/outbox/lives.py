"""Lives of an outbox's ledgers: which messages a producer epoch has, as the outbox's disk remembers it."""

import struct
from dataclasses import dataclass
from typing import Final, Self

_LIFE: Final = struct.Struct(">IIQB")


@dataclass(frozen=True, slots=True)
class Life:
    """One producer epoch of a lane.

    The messages behind `base` are in one ledger, in order, behind `skipped` frames that are no messages. It is the
    ledger of `closing` if that is not 0: then `epoch` has only the request to close it, and gets messages afterwards.
    """

    epoch: int
    closing: int
    """Producer epoch whose final set is not known yet; 0 if there is none."""
    base: int
    """Number of the last message before the ledger's first one. All messages through it are stored."""
    skipped: int
    """Number of requests at the beginning of the ledger: 0 or 1."""

    def encode(self) -> bytes:
        return _LIFE.pack(self.epoch, self.closing, self.base, self.skipped)

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Return the life that `data` encodes, or None if it is none."""
        if len(data) != _LIFE.size:
            return None
        epoch, closing, base, skipped = _LIFE.unpack(data)
        return cls(epoch, closing, base, skipped) if closing < epoch and skipped <= 1 else None

    def place_of(self, message: int) -> int:
        """Return the sequence of a message in its ledger."""
        return message - self.base + self.skipped

    def message_at(self, sequence: int) -> int:
        """Return the message through which a ledger is stored that is stored through a sequence."""
        return self.base + max(sequence - self.skipped, 0)

    def ended(self) -> "Life":
        """Return the life that asks for the final set of this one's messages."""
        return Life(self.epoch + 1, self.closing or self.epoch, self.base, self.skipped)
