"""Frames that decisions refer to."""

from .ledger_table import Span
from .wire.ranges import Range
from .wire.records import (
    ApplyRecord,
    CloseRecord,
    ExpireRecord,
    HandRecord,
    MoveRecord,
    Record,
)


def spans_of(record: Record) -> list[Span]:
    """Return the frames that a decision refers to."""
    match record:
        case HandRecord():
            return [_span(hand.range) for hand in record.hands]
        case MoveRecord() | ExpireRecord():
            return [_span(record.range)]
        case ApplyRecord():
            return [Span(record.ledger, verdict.sequence, verdict.sequence + 1) for verdict in record.verdicts]
        case CloseRecord():
            return [Span(record.ledger, first, last + 1) for first, last in record.final]
        case _:
            return []


def _span(each: Range) -> Span:
    return Span(each.ledger, each.first, each.last + 1)
