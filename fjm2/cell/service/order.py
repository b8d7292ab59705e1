"""Order among the ledgers of one producer and lane: messages of one go out when all of the older ones have gone out."""

from fjm2.base.ledger import Ledger, is_older
from fjm2.cell.ledger_table import LedgerTable, predecessor_of

from .backlog import Backlog
from .cursors import Cursor

_FIRST = 1
"""The first sequence of every ledger."""


def older_unread(ledger: Ledger, cursor: Cursor, backlog: Backlog, ledgers: LedgerTable) -> Ledger | None:
    """Return an older ledger that has, or may get, messages which the subscription has not got. Return None if there is
    none for certain.

    A member that knows nothing of the ledger before this one may have missed it. The manager closes that one in any
    case, with nothing in it if nobody has anything, and no ledger is closed before the older ones: so what a member
    says here rests on decisions.
    """
    successions = ledgers.successions
    if not ledger.producer_epoch:
        return None
    if successions.end_of(ledger) is None and successions.end_of(predecessor_of(ledger)) is None:
        return predecessor_of(ledger)
    known = (
        *successions.open_before(ledger),
        *successions.incomplete,
        *ledgers.doubts.ledgers,
        *backlog.ledgers_of(cursor.frame_hash),
    )
    older = sorted({each for each in known if is_older(each, ledger)}, reverse=True)
    return next((each for each in older if not _is_read(each, cursor, backlog, ledgers)), None)


def _is_read(ledger: Ledger, cursor: Cursor, backlog: Backlog, ledgers: LedgerTable) -> bool:
    """Return True if a ledger is closed, and all its messages are acknowledged or handed out."""
    end = ledgers.successions.end_of(ledger)
    if ledger in ledgers.doubts:  # it may have messages that were counted too early
        return False
    if end is None or decided_through(ledger, _FIRST, cursor, ledgers) < end - 1:
        return False
    return not any(any(backlog.within(cursor.frame_hash, ledger, low, high)) for low, high in cursor.free(ledger, end))


def decided_through(ledger: Ledger, first: int, cursor: Cursor, ledgers: LedgerTable) -> int:
    """Return the last sequence through which each one is acknowledged or on disk, so that its destination is known."""
    end = first
    while True:
        reached = cursor.end_of(ledger, ledgers.end_on_disk(ledger, end))
        if reached == end:
            return end - 1
        end = reached
