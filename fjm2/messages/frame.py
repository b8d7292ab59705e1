"""Encodes messages as frames, and finds frames in streams (docs/frames.md).

Sending: a connection's `FrameWriter` stamps a message and returns its frame in two parts, head and body, without
copying the body. In a transaction, the parts are kept until the commit, and then go through `seal`.

Receiving: each stream has a `FrameReader` that finds the frames in its runs. The router selects frames by the fields of
the fixed header, `is_sent_to` and `look_up`. It copies the frames, and `message.open_message` makes messages of them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar, Final, overload

from .client_headers import ClientHeaders
from .destination import KIND_FLAGS, Destination
from .errors import JMSError, MessageFormatError
from .header import (
    DECIDED_SECTION,
    FILE,
    FLAGS,
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    IN_PARTS,
    IN_TRANSACTION,
    KIND,
    KIND_MAX,
    NAME_BYTES,
    NO_TIMESTAMP,
    NULL_BODY,
    PERSISTENT,
    PRIORITY,
    PRIORITY_MAX,
    PROPERTY_BYTES,
    SECTION_BYTES,
    TIMESTAMP,
    VERSION,
    Header,
    Section,
    Transaction,
    decode_delay,
    decode_destination,
    decode_transaction,
    delay_section,
    message_id_of,
    sections_of,
    transaction_section,
)
from .message import Message, snapshot, stamp
from .properties import decode_properties, find_property
from .selector.names import HEADERS
from .types import PropertyValue

FRAME_BYTES_MAX: Final = 64 << 20
"""Size of the longest frame that is sent and accepted, in bytes. It bounds the memory that forged lengths can take."""
TRANSACTION_BYTES_MAX: Final = FRAME_BYTES_MAX
"""Size of the largest transaction that is sent, in bytes as receivers count them. They hold it until it is complete."""
TRANSACTION_BYTES: Final = 1024
"""Estimated memory of a transaction besides its messages."""
TRANSACTION_PART_BYTES: Final = 128
"""Estimated memory of a message of a transaction besides its frame, also of a message that no subscriber wants."""

_pack_header: Final = HEADER.pack
"""Bound once, as a call with a tuple of arguments would bind it each time."""

Parts = tuple[bytes, bytes]
"""A frame to be sent, in two parts: everything up to the body, and the body."""
Frame = tuple[bytes, int, int, int, Header]
"""A received frame: a buffer, three indexes in it, and the fields of the fixed header. The indexes are those at which
the frame begins, its body begins, and the frame ends."""

SKIPPED_HEADER: Final[Header] = (VERSION, 0, IN_TRANSACTION, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0)
"""Header of `SKIPPED`. No destination has its hash. It counts as in a transaction, as those take the slow path."""
SKIPPED: Final[Frame] = (b"", 0, 0, 0, SKIPPED_HEADER)
"""Stands among frames where a reader skipped something, if the reader `shows_skips`."""


def too_large(frame_bytes: int) -> JMSError:
    """Return the error of a message that no receiver would accept."""
    return JMSError(
        f"a message of {frame_bytes} bytes cannot be sent: expected at most {FRAME_BYTES_MAX}, headers included; "
        "send a larger body as a file: create_file_message(path), or fjm2 pub --file"
    )


class FrameWriter:
    """Encodes the messages of one connection as numbered frames."""

    __slots__ = ("connection_id", "number")
    writes_bodies: ClassVar[bool] = True
    """True if frames may be made of bodies, by `write_body` or as an array. Otherwise each is made from a message."""

    def __init__(self, connection_id: int, number: int = 0) -> None:
        self.connection_id = connection_id
        """Id of the connection: 64 random bits. With the number of a frame, it makes message ids unique without
        coordination."""
        self.number = number
        """Number of the latest frame."""

    def write(
        self,
        message: Message,
        destination: Destination,
        flags: int,
        priority: int,
        timestamp: int,
        expiration: int = 0,
        delivery_delay: int = 0,
    ) -> Parts:
        """Return the frame of a message as it is now, and set the headers of the send on the message. The arguments
        have been checked before.

        The caller passes the flags PERSISTENT, NO_MESSAGE_ID and NO_TIMESTAMP.
        """
        kind, properties, sections, body = snapshot(message)
        flags |= destination.kind_flags
        if body is None:
            flags |= NULL_BODY
            body = b""
        if delivery_delay:
            sections += delay_section(delivery_delay)
        name = destination.encoded_name
        name_bytes, property_bytes, section_bytes = len(name), len(properties), len(sections)
        frame_bytes = HEADER_BYTES + name_bytes + property_bytes + section_bytes + len(body)
        if frame_bytes > FRAME_BYTES_MAX:
            raise too_large(frame_bytes)
        self.number = number = self.number + 1
        header = (
            VERSION,
            kind,
            flags,
            priority,
            frame_bytes,
            destination.frame_hash,
            name_bytes,
            property_bytes,
            section_bytes,
            self.connection_id,
            number,
            timestamp,
            expiration,
        )
        stamp(message, header, destination, timestamp + delivery_delay if delivery_delay else None)
        return _pack_header(*header) + name + properties + sections, body

    def write_body(
        self,
        kind: int,
        properties: bytes,
        body: bytes,
        destination: Destination,
        flags: int,
        priority: int,
        timestamp: int,
        expiration: int = 0,
    ) -> Parts:
        """Return the frame of a message that has nothing but properties and a body, both encoded already."""
        name = destination.encoded_name
        name_bytes, property_bytes = len(name), len(properties)
        frame_bytes = HEADER_BYTES + name_bytes + property_bytes + len(body)
        if frame_bytes > FRAME_BYTES_MAX:
            raise too_large(frame_bytes)
        self.number = number = self.number + 1
        head = HEADER.pack(
            VERSION,
            kind,
            flags | destination.kind_flags,
            priority,
            frame_bytes,
            destination.frame_hash,
            name_bytes,
            property_bytes,
            0,
            self.connection_id,
            number,
            timestamp,
            expiration,
        )
        return head + name + properties, body


def seal(parts: Parts, transaction: Transaction, is_decided: bool = False) -> Parts:
    """Return the frame of a message with its place in a transaction added. The number of messages in it must be
    known. `is_decided` says that a cell of keepers decides the transaction."""
    head, body = parts
    fields = list(HEADER.unpack_from(head))
    section = transaction_section(transaction)
    if is_decided:
        section += DECIDED_SECTION
    fields[FLAGS] |= IN_TRANSACTION
    fields[FRAME_BYTES] += len(section)
    fields[SECTION_BYTES] += len(section)
    return HEADER.pack(*fields) + head[HEADER_BYTES:] + section, body


def with_properties(parts: Parts, change: Callable[[bytes], bytes]) -> Parts:
    """Return the frame with its encoded properties replaced by `change(properties)`."""
    head, body = parts
    fields = list(HEADER.unpack_from(head))
    at = HEADER_BYTES + fields[NAME_BYTES]
    end = at + fields[PROPERTY_BYTES]
    properties = change(head[at:end])
    fields[FRAME_BYTES] += len(properties) - fields[PROPERTY_BYTES]
    fields[PROPERTY_BYTES] = len(properties)
    if fields[FRAME_BYTES] > FRAME_BYTES_MAX:
        raise too_large(fields[FRAME_BYTES])
    return HEADER.pack(*fields) + head[HEADER_BYTES:at] + properties + head[end:], body


def transaction_of(buffer: bytes, header: Header, start: int = 0) -> Transaction | None:
    """Return the transaction that a frame belongs to, and the frame's place in it. Return None if it belongs to
    none."""
    if not header[FLAGS] & IN_TRANSACTION:
        return None
    content = sections_of(buffer, header, start).get(Section.TRANSACTION)
    if content is None:
        raise MessageFormatError("a message of a transaction without its transaction section")
    return decode_transaction(content)


def is_decided(buffer: bytes, header: Header, start: int = 0) -> bool:
    """Return True if a frame is a part of a transaction that a cell of keepers decides."""
    return bool(header[FLAGS] & IN_TRANSACTION) and Section.DECIDED in sections_of(buffer, header, start)


def is_sent_to(buffer: bytes, start: int, header: Header, destination: Destination) -> bool:
    """Return True if a frame goes to a destination. The caller has already compared the hashes."""
    return (
        header[NAME_BYTES] == len(destination.encoded_name)
        and header[FLAGS] & KIND_FLAGS == destination.kind_flags
        and buffer.startswith(destination.encoded_name, start + HEADER_BYTES)
    )


def look_up(buffer: bytes, start: int, header: Header, name: str) -> PropertyValue:
    """Return the value of the header or property `name`, for a selector. Return None if the frame does not have it.

    Nothing else of the frame is decoded. Raise MessageFormatError if the frame is malformed. A selector uses
    `partial(look_up, buffer, start, header)`.
    """
    if name in HEADERS:
        return _look_up_header(buffer, start, header, name)
    at = start + HEADER_BYTES + header[NAME_BYTES]
    return find_property(buffer, at, at + header[PROPERTY_BYTES], name)


def _look_up_header(buffer: bytes, start: int, header: Header, name: str) -> PropertyValue:
    if name == "JMSPriority":
        return header[PRIORITY]
    if name == "JMSDeliveryMode":
        return "PERSISTENT" if header[FLAGS] & PERSISTENT else "NON_PERSISTENT"
    if name == "JMSMessageID":
        return message_id_of(header)
    if name == "JMSTimestamp":
        return 0 if header[FLAGS] & NO_TIMESTAMP else header[TIMESTAMP]
    if name == "JMSDestination":
        return name_of(buffer, start, header)
    client = ClientHeaders.decode(sections_of(buffer, header, start)) if header[SECTION_BYTES] else ClientHeaders()
    return client.type if name == "JMSType" else client.correlation_text


def name_of(buffer: bytes, start: int, header: Header) -> str:
    """Return the name of a frame's destination. Raise MessageFormatError if it is malformed."""
    name_at = start + HEADER_BYTES
    try:
        return buffer[name_at : name_at + header[NAME_BYTES]].decode()
    except UnicodeDecodeError:
        raise MessageFormatError("a destination name is not UTF-8") from None


def body_place(header: Header) -> int:
    """Return the index in a frame at which the body begins."""
    return HEADER_BYTES + header[NAME_BYTES] + header[PROPERTY_BYTES] + header[SECTION_BYTES]


def frame_alone(data: bytes) -> Frame:
    """Return the one frame that data are."""
    header: Header = HEADER.unpack_from(data)
    return data, 0, body_place(header), len(data), header


def is_valid(header: Header) -> bool:
    """Return True if a header's fields make sense together, and belong to a message of one frame."""
    return (
        header[0] == VERSION
        and header[KIND] <= KIND_MAX
        and header[PRIORITY] <= PRIORITY_MAX
        and header[NAME_BYTES] > 0
        and body_place(header) <= header[FRAME_BYTES]
    )


def is_well_formed(buffer: bytes, start: int, header: Header) -> bool:
    """Return True if all of a frame but its body can be decoded. Bodies are decoded when they are accessed."""
    try:
        name = buffer[start + HEADER_BYTES : start + HEADER_BYTES + header[NAME_BYTES]]
        decode_destination(bytes((header[FLAGS] & KIND_FLAGS,)) + name)
        at = start + HEADER_BYTES + header[NAME_BYTES]
        decode_properties(buffer, at, at + header[PROPERTY_BYTES])
        sections = sections_of(buffer, header, start)
        ClientHeaders.decode(sections)
        if Section.DELIVERY_DELAY in sections:
            decode_delay(sections[Section.DELIVERY_DELAY])
        transaction_of(buffer, header, start)
    except MessageFormatError:
        return False
    return True


class FrameDrop(Enum):
    """Reason why a reader dropped data."""

    UNKNOWN = "a version or a kind of frame that this library does not know"
    MALFORMED = "lengths or values that make no sense"
    TOO_LARGE = "longer than this reader takes"
    CUT = "a frame of which the rest is missing"


_PIECES_MAX: Final = 1024
"""Greatest number of pieces of a frame that are held before they are joined. Many small pieces take far more memory
than their bytes."""


class MarksBehind(Sequence[int]):
    """Marks from an index on, counted from there. They are computed when first used, which is seldom."""

    __slots__ = ("_first", "_marks", "_places")

    def __init__(self, marks: Sequence[int], first: int) -> None:
        self._marks = marks
        self._first = first
        self._places: list[int] | None = None

    def _made(self) -> list[int]:
        if self._places is None:
            self._places = [mark - self._first for mark in self._marks if mark >= self._first]
        return self._places

    def __len__(self) -> int:
        return len(self._made())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._made()[index]


class FrameReader:
    """Finds the frames in the runs of one stream.

    Invalid data never raises an exception, but is counted in `drops`. Reading continues behind it if its length is
    plausible, otherwise at the next message mark of the stream. With `shows_skips`, SKIPPED stands among the frames
    where something was skipped. The reader holds at most `frame_bytes_max` bytes.
    """

    __slots__ = (
        "_header",
        "_is_synced",
        "_merged",
        "_pieces",
        "_shows_skips",
        "drops",
        "frame_bytes_max",
        "held_bytes",
    )

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, shows_skips: bool = False) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.drops: Counter[FrameDrop] = Counter()
        self._shows_skips = shows_skips
        self._is_synced = False
        self._pieces: list[bytes] = []
        """Pieces of the incomplete frame."""
        self.held_bytes = 0
        """Number of bytes held of an incomplete frame."""
        self._merged = 0
        """Number of pieces at the start of the list that were joined from small pieces."""
        self._header: Header | None = None
        """Header of the incomplete frame; None until all of the header has come."""

    def reset(self) -> None:
        """Drop the incomplete frame after a gap. Reading restarts at the next message mark."""
        if self._pieces:
            self.drops[FrameDrop.CUT] += 1
        self._release()
        self._is_synced = False

    def feed(self, run: bytes, marks: Sequence[int] = ()) -> list[Frame]:
        """Return all frames that end in this run, which follows the last run without a gap. Messages begin at its
        marks.

        Marks are used only if reading has to restart, or if a frame spans the whole run. The buffer of a frame is
        usually the run itself: copy the parts of it that are to be kept.
        """
        frames: list[Frame] = []
        at = shift = 0
        if not self._is_synced:
            at = self._resume(marks, 0, len(run))
        elif self._header is not None:
            at = self._continue(self._header, run, marks, frames)
        elif self._pieces:
            shift = self.held_bytes
            run = b"".join((*self._pieces, run))
            self._release()
        unpack, longest, size = HEADER.unpack_from, self.frame_bytes_max, len(run)
        while at + HEADER_BYTES <= size:
            header: Header = unpack(run, at)
            version, kind, _, priority, length, _, name, properties, sections, _, _, _, _ = header
            end = at + length
            body = at + HEADER_BYTES + name + properties + sections
            if (
                version != VERSION
                or kind > KIND_MAX
                or priority > PRIORITY_MAX
                or not name
                or body > end
                or length > longest
            ) and not (kind == FILE and self._is_part(header)):
                at = self._skip(header, end, size) or shift + self._resume(marks, at + 1 - shift, size - shift)
                self._show_skip(frames)
            elif end <= size:
                frames.append((run, at, body, end, header))
                at = end
            else:
                self._header = header
                break
        if at < size:
            self._hold(run[at:])
        return frames

    def split(self, data: bytes, marks: Sequence[int]) -> tuple[list[Frame], bytes, int, int]:
        """Read only the rest of the frame that is held, so that the caller can look at the frames behind it.

        Return four values: the frames that were read; the data that contain the next frames; the index in them at which
        the next frame begins; and the number of held bytes that these data begin with, before those that were passed.
        The caller must read everything from the index on, or pass it to `feed`, before it passes the next run. If the
        returned data are empty, all of the data were read.
        """
        if not self._is_synced:
            return self.feed(data, marks), b"", 0, 0
        frames: list[Frame] = []
        at = held = 0
        if self._header is not None:
            at = self._header[FRAME_BYTES] - self.held_bytes
            if at > len(data):
                return self.feed(data, marks), b"", 0, 0
            frames = self.feed(data[:at])
        elif self._pieces:
            held = self.held_bytes
            data = b"".join((*self._pieces, data))
            self._release()
        return frames, data, at, held

    def _continue(self, header: Header, run: bytes, marks: Sequence[int], frames: list[Frame]) -> int:
        """Add a run to the incomplete frame. Return the index in the run at which reading continues."""
        missing = header[FRAME_BYTES] - self.held_bytes
        if missing <= len(run):
            self._pieces.append(run[:missing])
            frame = b"".join(self._pieces)
            self._release()
            frames.append((frame, 0, body_place(header), len(frame), header))
            return missing
        if len(marks):
            # A message begins inside the space that this frame claims, so its length is wrong.
            self.drops[FrameDrop.MALFORMED] += 1
            self._release()
            self._show_skip(frames)
            return self._resume(marks, 0, len(run))
        self._hold(run)
        return len(run)

    def _skip(self, header: Header, end: int, size: int) -> int:
        """Drop a frame. Return the index at which it ends if its length is plausible, otherwise 0."""
        is_too_large = header[FRAME_BYTES] > self.frame_bytes_max
        if header[0] != VERSION or header[KIND] > KIND_MAX:
            self.drops[FrameDrop.UNKNOWN] += 1
        else:
            self.drops[FrameDrop.TOO_LARGE if is_too_large else FrameDrop.MALFORMED] += 1
        return end if header[FRAME_BYTES] >= HEADER_BYTES and not is_too_large and end <= size else 0

    def _is_part(self, header: Header) -> bool:
        """Return True if the header is that of a part of a file."""
        version, _, flags, priority, length, _, name, properties, sections, _, _, _, _ = header
        return (
            version == VERSION
            and bool(flags & IN_PARTS)
            and priority <= PRIORITY_MAX
            and name > 0
            and HEADER_BYTES + name + properties + sections <= length <= self.frame_bytes_max
        )

    def _show_skip(self, frames: list[Frame]) -> None:
        if self._shows_skips and (not frames or frames[-1] is not SKIPPED):
            frames.append(SKIPPED)

    def _resume(self, marks: Sequence[int], first: int, size: int) -> int:
        """Return the first message mark from the index `first` on. Without such a mark, return the end, to go on in the
        next run."""
        index = bisect_left(marks, first)
        at = marks[index] if index < len(marks) else size
        self._is_synced = first <= at < size
        return at if self._is_synced else size

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.held_bytes += len(piece)
        if len(self._pieces) - self._merged > _PIECES_MAX:
            self._pieces[self._merged :] = [b"".join(self._pieces[self._merged :])]
            self._merged += 1

    def _release(self) -> None:
        self._pieces = []
        self.held_bytes = self._merged = 0
        self._header = None
