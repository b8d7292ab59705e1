"""Commands by which a new consumer learns the last values of its topics from the members of a cell.

The consumer asks each member for a list, page by page, and then for the messages. These follow on the replay group.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from fjm2.base.ledger import SEQUENCE_MAX, Ledger

from .fields import FieldReader, MalformedError, check_count, check_keeper_id, encode_text, pack, require
from .ranges import Range, encode_ledger, encode_ranges, read_ledger, read_ranges

VALUES_QUERY: Final = 15
VALUES_PAGE: Final = 16
"""Kinds of the commands. They are between consumers and the processes of keepers: no cell takes them."""
PAGE_VALUES_MAX: Final = 20
"""Most values of a page: as many as a datagram of 1,400 bytes holds."""
QUERY_RANGES_MAX: Final = 32
"""Most ranges of a query, for the same reason."""
NAME_BYTES_MAX: Final = 1024
"""Length of the longest name of a topic or pattern that is asked for."""
IDENTITY_BYTES: Final = 16
NO_IDENTITY: Final = bytes(IDENTITY_BYTES)
"""Comes before all values."""

_QUERY = struct.Struct(">BBHIIIQ16s")
_PAGE = struct.Struct(">BBHIIQ16sII")
_VALUE = struct.Struct(">16s")
_NUMBERS = struct.Struct(">QQIB3s")
_NO_BYTES = bytes(3)


class Asked(IntEnum):
    """Subjects of a query."""

    ROOM = 0
    """How many values more the keeper takes."""
    TOPIC = 1
    """The values of a topic, in the order of their identities."""
    PATTERN = 2
    """Those of all topics that match a pattern."""
    MESSAGES = 3
    """Messages, by their places in ledgers."""


class Order(NamedTuple):
    """Place of a value among all with its identity: the greatest one is the newest.

    Stamps come from clocks. Where they are equal, the names of the ledgers decide, so that all keepers agree.
    """

    stamp: int
    ledger: Ledger
    sequence: int


class ListedValue(NamedTuple):
    """A value as a keeper lists it."""

    identity: bytes
    order: Order
    size: int
    """Bytes of the frame."""
    is_removal: bool = False
    """True if nothing is kept: the message removed the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesQuery:
    """A question for last values."""

    asked: Asked
    reply_to: int
    """Node that asks."""
    keeper_node: int
    """Node of the keeper that is asked; 0 for all."""
    number: int
    """Number of the list, by which the node that asks tells answers apart."""
    cell_id: int
    after: bytes = NO_IDENTITY
    """Identity behind which the page begins."""
    name: str = ""
    """Name of the topic or pattern."""
    ranges: tuple[Range, ...] = ()
    """Places of messages."""

    def encode(self) -> bytes:
        check_count("ranges", len(self.ranges), 0, QUERY_RANGES_MAX)
        head = pack(
            _QUERY,
            VALUES_QUERY,
            self.asked,
            len(self.ranges),
            self.reply_to,
            self.keeper_node,
            self.number,
            self.cell_id,
            self.after,
        )
        return head + encode_text(self.name) + encode_ranges(self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesPage:
    """A part of a keeper's list of last values."""

    reply_to: int
    number: int
    cell_id: int
    keeper_id: bytes
    after: bytes = NO_IDENTITY
    """Identity that the query named."""
    has_more: bool = False
    """True if the next page begins behind the last value of this one."""
    values_left: int
    """Number of values that the keeper still takes; at most 4 billion are told."""
    kib_left: int
    """KiB of values that the keeper still takes."""
    values: tuple[ListedValue, ...] = ()

    def encode(self) -> bytes:
        check_count("values", len(self.values), 0, PAGE_VALUES_MAX)
        head = pack(
            _PAGE,
            VALUES_PAGE,
            int(self.has_more),
            len(self.values),
            self.reply_to,
            self.number,
            self.cell_id,
            check_keeper_id(self.keeper_id),
            self.values_left,
            self.kib_left,
        )
        return head + self.after + b"".join(_encode_value(value) for value in self.values)


def _encode_value(value: ListedValue) -> bytes:
    order = value.order
    numbers = pack(_NUMBERS, order.stamp, order.sequence, value.size, int(value.is_removal), _NO_BYTES)
    return pack(_VALUE, value.identity) + encode_ledger(order.ledger) + numbers


def decode_query(content: bytes) -> ValuesQuery | None:
    """Return the query that `content` encodes, or None if it is malformed."""
    reader = FieldReader(content)
    try:
        _, asked, count, reply_to, keeper_node, number, cell_id, after = reader.unpack_any(_QUERY)
        name = reader.text()
        require(asked in _SUBJECTS and count <= QUERY_RANGES_MAX and len(name.encode()) <= NAME_BYTES_MAX)
        ranges = read_ranges(reader, count)
        reader.end()
    except MalformedError:
        return None
    return ValuesQuery(
        asked=Asked(asked),
        reply_to=reply_to,
        keeper_node=keeper_node,
        number=number,
        cell_id=cell_id,
        after=after,
        name=name,
        ranges=ranges,
    )


def decode_page(content: bytes) -> ValuesPage | None:
    """Return the page that `content` encodes, or None if it is malformed."""
    reader = FieldReader(content)
    try:
        _, has_more, count, reply_to, number, cell_id, keeper_id, values_left, kib_left = reader.unpack_any(_PAGE)
        require(has_more <= 1 and count <= PAGE_VALUES_MAX and (count > 0 or not has_more))
        after = reader.take(IDENTITY_BYTES)
        values = tuple(_read_value(reader) for _ in range(count))
        reader.end()
        identities = [after, *(value.identity for value in values)]
        require(all(one < other for one, other in pairwise(identities)))
    except MalformedError:
        return None
    return ValuesPage(
        reply_to=reply_to,
        number=number,
        cell_id=cell_id,
        keeper_id=keeper_id,
        after=after,
        has_more=bool(has_more),
        values_left=values_left,
        kib_left=kib_left,
        values=values,
    )


def _read_value(reader: FieldReader) -> ListedValue:
    (identity,) = reader.unpack_any(_VALUE)
    ledger = read_ledger(reader)
    stamp, sequence, size, is_removal, zeros = reader.unpack_any(_NUMBERS)
    require(1 <= sequence <= SEQUENCE_MAX and is_removal <= 1 and zeros == _NO_BYTES)
    return ListedValue(identity, Order(stamp, ledger, sequence), size, bool(is_removal))


_SUBJECTS: Final = frozenset(Asked)
