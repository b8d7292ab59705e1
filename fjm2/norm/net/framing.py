"""Messages in streams: each follows its length, in four bytes, big-endian. A mark shows where a message begins."""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np

MESSAGE_BYTES_MAX: Final = 64 << 20
"""Length in bytes of the longest message that is sent and accepted. It bounds the memory that forged lengths take."""
LENGTH: Final = struct.Struct(">I")
_EQUAL_MIN = 8
"""Fewest messages of one length that are cut out of a run together. For fewer, arrays cost more than they save."""
_EQUAL_MAX = 128
"""Most such messages. There is a `Struct` for each number of them: a train of usual messages has fewer."""
_PIECES_MAX = 1024
"""Number of pieces of a message that are held before they are joined: small pieces take far more memory than their
bytes."""


class MessageReader:
    """Finds the messages in the runs of one stream. It never raises: what makes no sense is skipped up to a mark."""

    __slots__ = (
        "_cutters",
        "_head",
        "_held_bytes",
        "_is_synced",
        "_merged",
        "_pieces",
        "_wanted_bytes",
        "bytes_skipped",
    )

    def __init__(self) -> None:
        self.bytes_skipped = 0
        """Bytes that made no sense, or belonged to a message that did not arrive whole, since it was last set to 0."""
        self._is_synced = False
        self._pieces: list[bytes] = []
        """Pieces of the incomplete message, with its length."""
        self._held_bytes = 0
        self._merged = 0
        """Number of pieces at the start of the list that were joined from small pieces."""
        self._wanted_bytes = 0
        """Length of the incomplete message, with the length itself; 0 until that has come."""
        self._head = b""
        """Encoded length of the last message that did not follow one of the same length."""
        self._cutters: dict[int, struct.Struct] = {}
        """Formats of several messages of that length, by their number."""

    @property
    def held_bytes(self) -> int:
        """Bytes held of an incomplete message."""
        return self._held_bytes

    def reset(self) -> None:
        """Forget the incomplete message, because of a gap. Reading goes on at the next mark."""
        self.bytes_skipped += self._held_bytes
        self._release()
        self._is_synced = False

    def read(self, run: bytes, marks: Sequence[int]) -> list[bytes]:
        """Return the messages that end in a run, which follows the last run without a gap."""
        at, size, head_bytes = 0, len(run), LENGTH.size
        messages: list[bytes] = []
        if not self._is_synced:
            at = self._resume(marks, 0, size)
        elif self._pieces:
            at = self._continue(run, marks, messages)
        while at + head_bytes <= size:
            head = run[at : at + head_bytes]
            if head == self._head and (cutter := self._equal(run, at)) is not None:
                messages += cutter.unpack_from(run, at)
                at += cutter.size
                continue
            length = int.from_bytes(head)
            end = at + head_bytes + length
            if length > MESSAGE_BYTES_MAX:
                self.reset()
                after = self._resume(marks, at + 1, size)
                self.bytes_skipped += after - at
                at = after
            elif end <= size:
                messages.append(run[at + head_bytes : end])
                if head != self._head:
                    self._head = head
                    self._cutters.clear()
                at = end
            else:
                break
        if at < size:
            self._hold(run[at:])
        return messages

    def _equal(self, run: bytes, at: int) -> struct.Struct | None:
        """Return the format of the messages from an index on if there are several of the last length, and all alike."""
        head = self._head
        length = int.from_bytes(head)
        row_bytes = LENGTH.size + length
        count = min((len(run) - at) // row_bytes, _EQUAL_MAX)
        if count < _EQUAL_MIN:
            return None
        heads = np.ndarray((count,), f"V{LENGTH.size}", run, at, (row_bytes,))
        if heads.tobytes() != head * count:
            return None
        cutter = self._cutters.get(count)
        if cutter is None:
            cutter = self._cutters[count] = struct.Struct(f"{LENGTH.size}x{length}s" * count)
        return cutter

    def _continue(self, run: bytes, marks: Sequence[int], messages: list[bytes]) -> int:
        """Add a run to the incomplete message. Return the index in the run at which reading continues."""
        if not self._wanted_bytes:
            head = b"".join(self._pieces) + run[: LENGTH.size - self._held_bytes]
            if len(head) == LENGTH.size:
                self._wanted_bytes = LENGTH.size + int.from_bytes(head)
        missing = self._wanted_bytes - self._held_bytes
        if 0 < missing <= len(run) and self._wanted_bytes <= LENGTH.size + MESSAGE_BYTES_MAX:
            self._pieces.append(run[:missing])
            messages.append(b"".join(self._pieces)[LENGTH.size :])
            self._release()
            return missing
        if len(marks) or self._wanted_bytes > LENGTH.size + MESSAGE_BYTES_MAX:
            # The length is wrong: it is too large, or a message begins inside the space that this one claims.
            self.reset()
            after = self._resume(marks, 0, len(run))
            self.bytes_skipped += after
            return after
        self._hold(run)
        return len(run)

    def _resume(self, marks: Sequence[int], first: int, size: int) -> int:
        """Return the first mark from the index `first` on. Without such a mark, return the end of the run."""
        index = bisect_left(marks, first)
        self._is_synced = index < len(marks) and marks[index] < size
        return marks[index] if self._is_synced else size

    def _hold(self, piece: bytes) -> None:
        if not self._pieces and len(piece) >= LENGTH.size:
            self._wanted_bytes = LENGTH.size + int.from_bytes(piece[: LENGTH.size])
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if len(self._pieces) - self._merged > _PIECES_MAX:
            self._pieces[self._merged :] = [b"".join(self._pieces[self._merged :])]
            self._merged += 1

    def _release(self) -> None:
        self._pieces = []
        self._held_bytes = self._merged = self._wanted_bytes = 0
