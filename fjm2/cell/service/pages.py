"""Pages of what a subscription has not acknowledged, for a consumer that catches up."""

from collections.abc import Iterator
from typing import Final

from fjm2.base.ledger import SEQUENCE_MAX, Ledger
from fjm2.cell.ledger_table import LedgerTable
from fjm2.cell.wire.catch_up import PAGE_SPANS_MAX, CatchUpPage, CatchUpQuery
from fjm2.cell.wire.ranges import Range

from .backlog import Backlog
from .cursors import ConsumerKey, Cursor
from .order import decided_through, older_unread

PAGE_MESSAGES_MAX: Final = 1024
"""Most messages of a page: a consumer asks for the next one when it has these."""
_END: Final = SEQUENCE_MAX + 1


def page_of(query: CatchUpQuery, cursor: Cursor, backlog: Backlog, ledgers: LedgerTable) -> CatchUpPage:
    """Return the page that answers a query."""
    ledger, first, frame_hash = query.ledger, query.first, cursor.frame_hash
    through = decided_through(ledger, first, cursor, ledgers)
    if cursor.hands_out(ledger):
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
    final_end = ledgers.successions.end_of(ledger)
    return CatchUpPage(
        is_hint=False,
        reply_to=query.reply_to,
        consumer=query.consumer,
        cell_id=query.cell_id,
        session=query.session,
        ledger=ledger,
        first=first,
        through=through,
        acknowledged=cursor.last(ledger),
        is_final=final_end is not None and through >= final_end - 1,
        older_ledger=None if cursor.hands_out(ledger) else older_unread(ledger, cursor, backlog, ledgers),
        next_ledger=backlog.ledger_from(frame_hash, ledger, is_next=True),
        spans=tuple(spans),
    )


def hint_of(query: CatchUpQuery, cursor: Cursor, backlog: Backlog) -> CatchUpPage:
    """Return a page that names the last message of a ledger that the consumer is to get.

    It answers those who look for messages of which they have heard nothing. Mostly they have: to send the frames as
    well would be to send again what is on its way.
    """
    frame_hash = cursor.frame_hash
    ledger = backlog.ledger_from(frame_hash, query.ledger, is_next=False) or query.ledger
    every = backlog.last_within(frame_hash, ledger, 1, _END) + 1
    gaps = reversed(list(cursor.gaps(ledger, 1, every)))
    last = next(filter(None, (backlog.last_within(frame_hash, ledger, *gap) for gap in gaps)), 0)
    return CatchUpPage(
        is_hint=True,
        reply_to=query.reply_to,
        consumer=query.consumer,
        cell_id=query.cell_id,
        session=query.session,
        ledger=ledger,
        first=1,
        through=last,
        acknowledged=cursor.last(ledger),
        is_final=False,
        older_ledger=None,
        next_ledger=backlog.ledger_from(frame_hash, ledger, is_next=True),
        spans=((last, last),) if last else (),
    )


def _parts(query: CatchUpQuery, cursor: Cursor, ledger: Ledger, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between first and end that the consumer is to get."""
    if cursor.hands_out(ledger):
        return cursor.held_within(ConsumerKey(query.session, query.consumer), ledger, first, end)
    return cursor.gaps(ledger, first, end)


def replayed(page: CatchUpPage) -> tuple[Range, ...]:
    """Return the ranges that a page names."""
    return tuple(Range(page.ledger, first, last - first + 1) for first, last in page.spans)
