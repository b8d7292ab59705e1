"""Requests of clients to the cell: bodies of PERSISTENT frames to the queue FJM2.CELL."""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import ClassVar, Final

from .fields import FieldReader, MalformedError, check_count, encode_text, pack, require
from .ranges import RANGES_MAX, Range, encode_ranges, read_ranges

TEXT_CHARACTERS_MAX: Final = 1024
"""Length of the longest client id or name that keepers take. Jakarta Messaging asks for 128."""
SELECTOR_CHARACTERS_MAX: Final = 16_384
"""Length of the longest selector that they take."""

_HEAD = struct.Struct(">BBHQ")
_OPEN = struct.Struct(">B")
_SUBSCRIBE = struct.Struct(">BI")
_TRANSACTION = struct.Struct(">Q")
_COMMIT = struct.Struct(">QI")
_DESTINATION = struct.Struct(">B")
_CONSUMER = struct.Struct(">I")
_EPOCH = struct.Struct(">I")


class RequestKind(IntEnum):
    """Kinds of requests."""

    OPEN = 1
    SUBSCRIBE = 2
    ACK = 3
    COMMIT = 4
    RETURN = 5
    CLAIM = 6
    CLOSE = 7
    UNSUBSCRIBE = 8
    OUTCOME = 9
    END = 10


class SubscriptionFlag(IntFlag):
    """Properties of a subscription. One to a queue has none of them, and one that is shared and not durable ends with
    its last consumer."""

    DURABLE = 1
    SHARED = 2
    NO_LOCAL = 4


SUBSCRIPTION_FLAGS: Final = int(SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED | SubscriptionFlag.NO_LOCAL)


@dataclass(frozen=True, slots=True)
class Place:
    """A destination: the flags that tell queues from topics (`fjm2.messages.destination`), and its name."""

    kind_flags: int
    name: str

    def encode(self) -> bytes:
        return pack(_DESTINATION, self.kind_flags) + encode_text(self.name)

    @property
    def frame_hash(self) -> int:
        """The hash by which frames name the destination, as `fjm2.messages.destination.hash_of` makes it."""
        return zlib.crc32(self.name.encode(), zlib.crc32(bytes((self.kind_flags,))))


def read_place(reader: FieldReader) -> Place:
    """Read a destination."""
    (kind_flags,) = reader.unpack(_DESTINATION)
    return Place(kind_flags, reader.text())


@dataclass(frozen=True, slots=True)
class Open:
    """Opens a session."""

    kind: ClassVar = RequestKind.OPEN
    session: int
    mode: int
    """JMS's acknowledgement mode of the session."""
    client_id: str

    @property
    def count(self) -> int:
        return 1

    def encode_items(self) -> bytes:
        return pack(_OPEN, self.mode) + encode_text(self.client_id)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Creates a consumer, and with a name its subscription."""

    kind: ClassVar = RequestKind.SUBSCRIBE
    session: int
    flags: int
    credit: int
    """Number of messages that the consumer takes ahead."""
    destination: Place
    name: str
    selector: str

    @property
    def count(self) -> int:
        return 1

    def encode_items(self) -> bytes:
        texts = encode_text(self.name) + encode_text(self.selector)
        return pack(_SUBSCRIBE, self.flags, self.credit) + self.destination.encode() + texts


@dataclass(frozen=True, slots=True)
class _RangesRequest:
    """A request that is about ranges."""

    session: int
    ranges: tuple[Range, ...]

    @property
    def count(self) -> int:
        return len(self.ranges)

    def encode_items(self) -> bytes:
        return encode_ranges(self.ranges)


class Ack(_RangesRequest):
    """Acknowledges messages."""

    __slots__ = ()
    kind: ClassVar = RequestKind.ACK


class Return(_RangesRequest):
    """Gives messages back."""

    __slots__ = ()
    kind: ClassVar = RequestKind.RETURN


class Claim(_RangesRequest):
    """Names the messages that a session works on, after a takeover."""

    __slots__ = ()
    kind: ClassVar = RequestKind.CLAIM


@dataclass(frozen=True, slots=True)
class Commit:
    """Commits a transaction."""

    kind: ClassVar = RequestKind.COMMIT
    session: int
    transaction: int
    own: tuple[Range, ...]
    """Ranges of the client's own ledgers: the messages that the transaction sends."""
    acked: tuple[Range, ...]
    """Ranges that the transaction acknowledges."""

    @property
    def count(self) -> int:
        return len(self.own) + len(self.acked)

    def encode_items(self) -> bytes:
        return pack(_COMMIT, self.transaction, len(self.own)) + encode_ranges(self.own) + encode_ranges(self.acked)


@dataclass(frozen=True, slots=True)
class Close:
    """Closes consumers of a session, or the session."""

    kind: ClassVar = RequestKind.CLOSE
    session: int
    consumers: tuple[int, ...] = ()
    """Numbers of the consumers: the low 32 bits of the sequences of the requests that made them. None: the session."""

    @property
    def count(self) -> int:
        return len(self.consumers)

    def encode_items(self) -> bytes:
        return b"".join(pack(_CONSUMER, each) for each in self.consumers)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Ends a durable subscription."""

    kind: ClassVar = RequestKind.UNSUBSCRIBE
    session: int
    name: str

    @property
    def count(self) -> int:
        return 1

    def encode_items(self) -> bytes:
        return encode_text(self.name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Asks for the outcome of a transaction. An unknown transaction is refused from then on."""

    kind: ClassVar = RequestKind.OUTCOME
    session: int
    transaction: int

    @property
    def count(self) -> int:
        return 1

    def encode_items(self) -> bytes:
        return pack(_TRANSACTION, self.transaction)


@dataclass(frozen=True, slots=True)
class End:
    """Asks for the final set of an earlier ledger of the same producer and lane, because its writer has ended."""

    kind: ClassVar = RequestKind.END
    session: int
    """0: this request needs no session."""
    producer_epoch: int
    """Producer epoch of the ledger."""

    @property
    def count(self) -> int:
        return 1

    def encode_items(self) -> bytes:
        return pack(_EPOCH, self.producer_epoch)


Request = Open | Subscribe | Ack | Commit | Return | Claim | Close | Unsubscribe | Outcome | End


def encode_request(request: Request) -> bytes:
    """Return the body of a request."""
    check_count("ranges", request.count, 0, RANGES_MAX)
    return pack(_HEAD, request.kind, 0, request.count, request.session) + request.encode_items()


def decode_request(body: bytes) -> Request | None:
    """Return the request that `body` encodes, or None if it is malformed or of an unknown kind."""
    reader = FieldReader(body)
    try:
        kind, zero, count, session = reader.unpack(_HEAD)
        request = _read_items(reader, kind, session, count)
        reader.end()
        require(not zero and request.count == count)
    except MalformedError:
        return None
    return request


def _read_items(reader: FieldReader, kind: int, session: int, count: int) -> Request:
    match kind:
        case RequestKind.OPEN:
            (mode,) = reader.unpack(_OPEN)
            return Open(session, mode, reader.text())
        case RequestKind.SUBSCRIBE:
            flags, credit = reader.unpack(_SUBSCRIBE)
            require(not flags & ~SUBSCRIPTION_FLAGS)
            return Subscribe(session, flags, credit, read_place(reader), reader.text(), reader.text())
        case RequestKind.ACK:
            return Ack(session, read_ranges(reader, count))
        case RequestKind.COMMIT:
            transaction, own = reader.unpack(_COMMIT)
            require(own <= count <= RANGES_MAX)
            return Commit(session, transaction, read_ranges(reader, own), read_ranges(reader, count - own))
        case RequestKind.RETURN:
            return Return(session, read_ranges(reader, count))
        case RequestKind.CLAIM:
            return Claim(session, read_ranges(reader, count))
        case RequestKind.CLOSE:
            require(reader.remaining >= count * _CONSUMER.size)
            return Close(session, tuple(reader.unpack(_CONSUMER)[0] for _ in range(count)))
        case RequestKind.UNSUBSCRIBE:
            return Unsubscribe(session, reader.text())
        case RequestKind.OUTCOME:
            return Outcome(session, *reader.unpack(_TRANSACTION))
        case RequestKind.END:
            return End(session, *reader.unpack(_EPOCH))
        case _:
            raise MalformedError
