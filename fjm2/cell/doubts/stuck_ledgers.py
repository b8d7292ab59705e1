"""Ledgers that stay in doubt."""

from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.cell.ledger_table import LedgerTable
from fjm2.cell.times import DOUBT_S

_PAUSE_S: Final = 1.0
"""Time without a look after which the doubts are counted anew: nothing was asked for meanwhile."""


class StuckLedgers:
    """Finds the ledgers whose lowest doubt stays for long, so that nothing behind it is confirmed or handed out."""

    def __init__(self, ledgers: LedgerTable) -> None:
        self._ledgers = ledgers
        self._since: dict[Ledger, tuple[int, float]] = {}
        """Lowest doubtful sequence of each ledger, and the time at which it was seen first."""
        self._looked_at = 0.0

    def find(self, now: float, *, is_waiting: bool) -> list[Ledger]:
        """Return the ledgers to be fenced. `is_waiting` is True while there is no room for frames that others have."""
        doubts = self._ledgers.doubts
        if is_waiting or now - self._looked_at > _PAUSE_S:
            self._since.clear()
        self._looked_at = now
        since: dict[Ledger, tuple[int, float]] = {}
        for ledger in doubts.ledgers:
            if not self._ledgers.is_fenced(ledger):
                first = doubts.first(ledger)
                known = self._since.get(ledger, (0, now))
                since[ledger] = known if known[0] == first else (first, now)
        self._since = since
        return [ledger for ledger, (_, began_at) in since.items() if now - began_at >= DOUBT_S]
