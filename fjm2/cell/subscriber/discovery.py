"""Search for ledgers that have messages for a subscription, of which its consumer has heard nothing."""

from typing import Final

from fjm2.base.ledger import Ledger

from ..wire.catch_up import CatchUpPage
from .context import RETRY_S

REST_S: Final = 5.0
"""Time between two searches. What is heard needs none: a search finds the writers that have gone, and lost ends."""
_FIRST: Final = Ledger(0, 0, 0)


class Discovery:
    """Goes through the ledgers that keepers have messages of, one page after the other."""

    def __init__(self) -> None:
        self.next_at = 0.0
        """Time of the next question."""
        self._from = _FIRST
        """First ledger of which nothing was said in this search."""
        self._is_asking = False

    def poll(self, now: float) -> Ledger | None:
        """Return the ledger from which on to ask, if it is time."""
        if now < self.next_at:
            return None
        self.next_at = now + RETRY_S
        self._is_asking = True
        return self._from

    def note_page(self, page: CatchUpPage, now: float) -> None:
        """Note an answer, or another page, which tells as much about the ledgers behind it."""
        if not self._is_asking or page.ledger < self._from:
            return
        self._is_asking = False
        if page.next_ledger is None:
            self._from = _FIRST
            self.next_at = now + REST_S
        else:
            self._from = page.next_ledger
            self.next_at = now
