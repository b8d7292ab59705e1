"""The manager's sending of decisions: new ones, those that few have confirmed, and those that others lack."""

from typing import Final

from .context import Context
from .decision_log import DecisionLog
from .outgoing import SendEntry
from .wire.ranges import Range

RESEND_MAX: Final = 32
"""Most entries that are sent again with a heartbeat, because no majority has confirmed them."""
REPLAY_MAX: Final = 64
"""Most entries of the decision log that one fetch gets."""
SNAPSHOT_INTERVAL_S: Final = 1.0
"""Shortest time between two sendings of the snapshot, which may have megabytes."""


class EntrySender:
    """Sends entries of a manager's log."""

    def __init__(self, context: Context, log: DecisionLog, now: float) -> None:
        self._context = context
        self._log = log
        self._snapshot_at = now
        """Time before which the snapshot is not sent again."""
        self._last_before = 0
        """Last index at the heartbeat before: what has not been confirmed since is sent again."""

    def send(self, index: int) -> None:
        """Send one entry."""
        entry = self._log.entry(index)
        self._context.outgoing.append(SendEntry(entry.epoch, index, entry.data))

    def send_again(self) -> None:
        """Send the newest entries that are not committed. Those who lack what is before them fetch it."""
        for index in range(max(self._log.committed, self._last_before - RESEND_MAX) + 1, self._last_before + 1):
            self.send(index)
        self._last_before = self._log.last_index

    def replay(self, wanted: Range, now: float) -> None:
        """Send entries that another keeper lacks. The snapshot stands for those that are gone."""
        log = self._log
        first = wanted.first
        if first < log.first_index:
            first = log.snapshot_index + 1
            if now >= self._snapshot_at:
                self._snapshot_at = now + SNAPSHOT_INTERVAL_S
                self._send_snapshot()
        for index in range(first, min(wanted.last, first + REPLAY_MAX - 1, log.last_index) + 1):
            self.send(index)

    def _send_snapshot(self) -> None:
        log = self._log
        if log.snapshot is not None:
            entry = log.snapshot
            self._context.outgoing.append(SendEntry(entry.epoch, log.snapshot_index, entry.data))
