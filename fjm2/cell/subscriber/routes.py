"""Ways of frames to the consumers that are to get them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol

from fjm2.base.ledger import Ledger

from .outgoing import F

if TYPE_CHECKING:
    from .reader import Reader


class Target(Protocol[F]):
    """A consumer that gets frames."""

    readers: "dict[Ledger, Reader[F]]"

    @property
    def frame_hash(self) -> int: ...

    def open_reader(self, ledger: Ledger, now: float) -> "Reader[F] | None": ...


class FrameRoutes(Generic[F]):
    """Finds the readers of a frame, by its ledger and destination."""

    def __init__(self) -> None:
        self._by_ledger: dict[Ledger, list[Reader[F]]] = {}
        self._by_hash: dict[int, list[Target[F]]] = {}

    def add(self, consumer: Target[F]) -> None:
        """Pass frames to a consumer from now on."""
        self._by_hash.setdefault(consumer.frame_hash, []).append(consumer)

    def remove(self, consumer: Target[F]) -> None:
        """Pass a consumer no more frames."""
        consumers = self._by_hash.get(consumer.frame_hash, [])
        if consumer in consumers:
            consumers.remove(consumer)
            if not consumers:
                del self._by_hash[consumer.frame_hash]

    def add_reader(self, reader: "Reader[F]") -> None:
        """Pass the frames of a ledger to a reader."""
        self._by_ledger.setdefault(reader.ledger, []).append(reader)

    def remove_reader(self, reader: "Reader[F]") -> None:
        """Pass a reader no more frames."""
        readers = self._by_ledger[reader.ledger]
        readers.remove(reader)
        if not readers:
            del self._by_ledger[reader.ledger]

    def hear(self, frame_hash: int, ledger: Ledger, first: int, frames: Sequence[F], now: float) -> None:
        """Pass on consecutive frames of one ledger to one destination."""
        for consumer in self._by_hash.get(frame_hash, ()):
            if ledger not in consumer.readers:
                consumer.open_reader(ledger, now)
        for reader in self._by_ledger.get(ledger, ()):
            if reader.frame_hash == frame_hash:
                reader.hear(first, frames, now)
            else:
                reader.skip(first, len(frames), now)

    def skip(self, ledger: Ledger, first: int, count: int, now: float) -> None:
        """Pass on consecutive numbers of frames to destinations that nobody here reads."""
        for reader in self._by_ledger.get(ledger, ()):
            reader.skip(first, count, now)
