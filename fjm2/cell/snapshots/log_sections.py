"""Sections of what every member keeps: configurations, fences, closed ledgers, the table, and the time."""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from fjm2.base.ledger import Ledger

from ..decision_log import DecisionLog
from ..ledger_table import ClosedLedger, LedgerTable
from ..subscription_table import SubscriptionTable, TableState
from ..wire.fields import FieldReader, MalformedError, encode_text, pack, require
from ..wire.ranges import encode_ledger, encode_positions, encode_spans, read_ledger, read_positions, read_spans
from ..wire.records import ConfigureRecord, Subscription, read_configure
from ..wire.requests import SUBSCRIPTION_FLAGS, read_place

_T = TypeVar("_T")
_COUNT: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_FLAGS: Final = struct.Struct(">B")
_TABLE: Final = struct.Struct(">QI")


class LogState(NamedTuple):
    """Knowledge of the entries before a snapshot that the log still needs."""

    configurations: list[tuple[int, ConfigureRecord]]
    fences: list[tuple[int, Ledger]]


class LogSection:
    """The configurations that count, and the ledgers that are fenced and not closed, with their entries' indexes."""

    name: Final = "log/1"
    index: Final = None

    def __init__(self, log: DecisionLog, ledgers: LedgerTable) -> None:
        self._log, self._ledgers = log, ledgers

    def encode(self, index: int) -> bytes:
        configurations, fences = self._log.configurations_at(index), self._log.fences_at(index)
        parts = [pack(_COUNT, len(configurations))]
        for at, record in configurations:
            content = record.encode()
            parts += [pack(_U64, at), pack(_COUNT, len(content)), content]
        parts.append(pack(_COUNT, len(fences)))
        parts += [pack(_U64, at) + encode_ledger(ledger) for at, ledger in fences]
        return b"".join(parts)

    def decode(self, data: bytes) -> LogState | None:
        return _decoded(data, _read_log)

    def adopt(self, state: LogState, index: int, now: float) -> None:
        del index
        self._log.restore(*state)
        for _, ledger in state.fences:
            self._ledgers.fence(ledger, now)


def _read_log(reader: FieldReader) -> LogState:
    configurations = []
    (count,) = reader.unpack(_COUNT)
    for _ in range(count):
        (at,) = reader.unpack(_U64)
        (size,) = reader.unpack(_COUNT)
        content = FieldReader(reader.take(size))
        configurations.append((at, read_configure(content)))
        content.end()
    (count,) = reader.unpack(_COUNT)
    fences = [(reader.unpack(_U64)[0], read_ledger(reader)) for _ in range(count)]
    return LogState(configurations, fences)


class LedgerSection:
    """The final sets of closed ledgers."""

    name: Final = "ledgers/1"
    index: Final = None

    def __init__(self, ledgers: LedgerTable) -> None:
        self._ledgers = ledgers

    def encode(self, index: int) -> bytes:
        del index
        closed = self._ledgers.closed_ledgers
        return pack(_COUNT, len(closed)) + b"".join(
            encode_ledger(each.ledger) + pack(_U64, each.at_ms) + encode_spans(each.final) for each in closed
        )

    def decode(self, data: bytes) -> Sequence[ClosedLedger] | None:
        return _decoded(data, _read_closed)

    def adopt(self, state: Sequence[ClosedLedger], index: int, now: float) -> None:
        del index
        for each in state:
            self._ledgers.close(each.ledger, each.final, now, each.at_ms)


def _read_closed(reader: FieldReader) -> list[ClosedLedger]:
    (count,) = reader.unpack(_COUNT)
    found = []
    for _ in range(count):
        ledger = read_ledger(reader)
        (at_ms,) = reader.unpack(_U64)
        found.append(ClosedLedger(ledger, read_spans(reader), at_ms))
    return found


class TableSection:
    """The durable and shared subscriptions."""

    name: Final = "table/1"
    index: Final = None

    def __init__(self, table: SubscriptionTable) -> None:
        self._table = table

    def encode(self, index: int) -> bytes:
        del index
        state = self._table.state
        parts = [pack(_TABLE, state.version, len(state.subscriptions))]
        for (flags, destination, *texts), starts in state.subscriptions:
            parts += [pack(_FLAGS, flags), destination.encode(), *map(encode_text, texts), encode_positions(starts)]
        return b"".join(parts)

    def decode(self, data: bytes) -> TableState | None:
        return _decoded(data, _read_table)

    def adopt(self, state: TableState, index: int, now: float) -> None:
        del index, now
        self._table.state = state


def _read_table(reader: FieldReader) -> TableState:
    version, count = reader.unpack(_TABLE)
    subscriptions = []
    for _ in range(count):
        (flags,) = reader.unpack(_FLAGS)
        require(not flags & ~SUBSCRIPTION_FLAGS)
        subscription = Subscription(flags, read_place(reader), reader.text(), reader.text(), reader.text())
        subscriptions.append((subscription, read_positions(reader)))
    return TableState(version, subscriptions)


class TimeSection:
    """The time of the newest TIME record."""

    name: Final = "time/1"
    index: Final = None

    def __init__(self) -> None:
        self.milliseconds = 0
        """Milliseconds since 1970."""

    def encode(self, index: int) -> bytes:
        del index
        return pack(_U64, self.milliseconds)

    def decode(self, data: bytes) -> int | None:
        return _decoded(data, lambda reader: reader.unpack(_U64)[0])

    def adopt(self, state: int, index: int, now: float) -> None:
        del index, now
        self.milliseconds = state


def _decoded(data: bytes, read: Callable[[FieldReader], _T]) -> _T | None:
    reader = FieldReader(data)
    try:
        state = read(reader)
        reader.end()
    except MalformedError:
        return None
    return state
