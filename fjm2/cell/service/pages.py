"""Pages of what a subscription has not acknowledged, for a consumer that catches up."""

from collections.abc import Iterator
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.cell.ledger_table import LedgerTable
from fjm2.cell.wire.catch_up import PAGE_SPANS_MAX, CatchUpPage, CatchUpQuery
from fjm2.cell.wire.ranges import Range

from .backlog import Backlog
from .cursors import ConsumerKey, Cursor

PAGE_MESSAGES_MAX: Final = 1024
"""Most messages of a page: a consumer asks for the next one when it has these."""


def page_of(query: CatchUpQuery, cursor: Cursor, backlog: Backlog, ledgers: LedgerTable) -> CatchUpPage:
    """Return the page that answers a query."""
    ledger, first, frame_hash = query.ledger, query.first, cursor.frame_hash
    if not query.is_exact:
        found = backlog.ledger_from(frame_hash, ledger, is_next=False)
        if found is not None and found != ledger:
            ledger, first = found, 1
    through = _decided_through(ledger, first, cursor, ledgers)
    if cursor.is_shared:
        held = cursor.end_held(ConsumerKey(query.session, query.consumer), ledger, first)
        through = min(through, held - 1)  # a keeper that has not applied HAND knows of nothing
    spans: list[tuple[int, int]] = []
    room = PAGE_MESSAGES_MAX
    for low, high in backlog.within(frame_hash, ledger, first, through + 1):
        for start, end in _parts(query, cursor, ledger, low, high):
            if not room or len(spans) == PAGE_SPANS_MAX:
                through = min(through, start - 1)
                break
            taken = min(end, start + room)
            room -= taken - start
            spans.append((start, taken - 1))
            if taken < end:
                through = taken - 1
                break
        else:
            continue
        break
    return CatchUpPage(
        reply_to=query.reply_to,
        consumer=query.consumer,
        cell_id=query.cell_id,
        session=query.session,
        ledger=ledger,
        first=first,
        through=through,
        acknowledged=cursor.last(ledger),
        next_ledger=backlog.ledger_from(frame_hash, ledger, is_next=True),
        spans=tuple(spans),
    )


def _parts(query: CatchUpQuery, cursor: Cursor, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between first and end that the consumer is to get."""
    if cursor.is_shared:
        return cursor.held_within(ConsumerKey(query.session, query.consumer), ledger, first, end)
    return cursor.gaps(ledger, first, end)


def _decided_through(ledger: Ledger, first: int, cursor: Cursor, ledgers: LedgerTable) -> int:
    """Return the last sequence through which each one is acknowledged or on disk, so that its destination is known."""
    end = first
    while True:
        reached = cursor.end_of(ledger, ledgers.end_on_disk(ledger, end))
        if reached == end:
            return end - 1
        end = reached


def replayed(page: CatchUpPage) -> tuple[Range, ...]:
    """Return the ranges that a page names."""
    return tuple(Range(page.ledger, first, last - first + 1) for first, last in page.spans)
