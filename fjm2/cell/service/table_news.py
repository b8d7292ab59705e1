"""The manager's news of the table: which destinations are stored, told to all publishers at once."""

import math
from typing import Final

from fjm2.cell.context import Context
from fjm2.cell.outgoing import SendCommand
from fjm2.cell.subscription_table import SubscriptionTable
from fjm2.cell.wire.table import TableHashes, TableQuery, table_parts

TELL_INTERVAL_S: Final = 0.1
"""Shortest time between two tellings, whoever asks: an answer goes to all."""
PARTS_AT_ONCE: Final = 32
"""Most parts that are sent at once: 40 KB. The rest of a long table follows after the interval."""
NEVER: Final = math.inf


class TableNews:
    """Tells the table when it has changed, and when somebody asks."""

    def __init__(self, context: Context, table: SubscriptionTable) -> None:
        self._context = context
        self._table = table
        self._told = table.version
        """Newest version that was told. The version before this manager was told by another one, and is asked for."""
        self._is_asked = False
        self._waiting: list[TableHashes] = []
        """Parts that have not been sent, the last one first."""
        self._free_at = -NEVER

    @property
    def next_at(self) -> float:
        """Time at which something is to be told."""
        return self._free_at if self._is_due else NEVER

    @property
    def _is_due(self) -> bool:
        return bool(self._waiting) or self._is_asked or self._told != self._table.version

    def receive(self, query: TableQuery) -> None:
        """Note that somebody asks. A version that this manager has not got is told as soon as there is one."""
        if query.version <= self._table.version:
            self.ask()

    def ask(self) -> None:
        """Tell the table again."""
        self._is_asked = True

    def advance(self, now: float) -> None:
        """Tell what is due."""
        if not self._is_due or now < self._free_at:
            return
        table = self._table
        if not self._waiting or self._waiting[0].version != table.version:
            self._is_asked = False
            self._told = table.version
            self._waiting = table_parts(self._context.cell_id, table.version, table.hashes())[::-1]
        for _ in range(min(PARTS_AT_ONCE, len(self._waiting))):
            self._context.outgoing.append(SendCommand(self._waiting.pop()))
        self._free_at = now + TELL_INTERVAL_S
