"""Ways to break the rules of a cell, each by changing one decision of the code."""

from collections.abc import Callable
from typing import Any

import pytest
from keeper_disks import KeeperDisk

from fjm2.cell import closing, election, manager
from fjm2.cell.replica import Replica
from fjm2.store.format.identity import IDENTITY

Patch = pytest.MonkeyPatch


def confirm_before_sync(patch: Patch) -> None:
    """STORED says "on disk" when frames are written, not when they are synced."""
    store_frames = Replica.store_frames

    def store(self: Replica, ledger: Any, first: int, frames: Any, now: float, **options: Any) -> None:
        store_frames(self, ledger, first, frames, now, **options)
        for low, high in self.ledgers._ledgers[ledger].seen if ledger in self.ledgers else ():
            self.ledgers._ledgers[ledger].on_disk.add(low, high)

    patch.setattr(Replica, "store_frames", store)


def serve_without_votes(patch: Patch) -> None:
    """A candidate needs no votes."""
    elected = property(lambda self: bool(self.epoch) and not self._is_pre_vote and bool(self._votes))
    patch.setattr(election.Election, "is_elected", elected)
    patch.setattr(manager.Manager, "is_leased", lambda *_: True)


def read_nothing(patch: Patch) -> None:
    """A new manager does not read what members store."""
    patch.setattr(manager.Manager, "_has_read", lambda *_: True)


def keep_the_incarnation(patch: Patch) -> None:
    """A keeper that lost its disk returns as itself, votes and confirms."""

    lose = KeeperDisk.lose

    def lose_and_forget(self: KeeperDisk) -> None:
        identity = self.disk.content(IDENTITY)
        lose(self)
        self.disk.put(IDENTITY, identity)

    patch.setattr(KeeperDisk, "lose", lose_and_forget)


def vote_for_old_logs(patch: Patch) -> None:
    """Votes go to logs that are older than the voter's own."""
    receive = election.Election.receive_request

    def receive_request(self: Any, request: Any, now: float, *, is_managing: bool) -> None:
        log = self._replica.log
        held = log._entries, log.first_index, log._epoch_before
        log._entries, log.first_index, log._epoch_before = [], 1, 0
        try:
            receive(self, request, now, is_managing=is_managing)
        finally:
            log._entries, log.first_index, log._epoch_before = held

    patch.setattr(election.Election, "receive_request", receive_request)


def commit_old_epochs(patch: Patch) -> None:
    """Entries of older epochs count as committed by copies."""

    def commit(self: manager.Manager, now: float) -> None:
        log = self._replica.log
        for index in range(log.last_index, log.committed, -1):
            holders = {member for member, report in self.reports if report.stored and report.progresses is not None}
            if log.membership.has_majority(holders | {self._context.me}):
                self._replica.commit(index, now)
                return

    patch.setattr(manager.Manager, "_commit", commit)


def lease_too_long(patch: Patch) -> None:
    """A manager goes on after its followers may have elected another one."""
    patch.setattr(manager, "LEASE_S", 2.5)


def close_without_reports(patch: Patch) -> None:
    """The final set is what the manager has, whatever fenced members report."""
    patch.setattr(closing.LedgerClosing, "_is_final", lambda *_: True)


BROKEN: dict[str, tuple[Callable[[Patch], None], int]] = {
    "confirm before sync": (confirm_before_sync, 0),
    "serve without votes": (serve_without_votes, 0),
    "read nothing": (read_nothing, 0),
    "keep the incarnation": (keep_the_incarnation, 4),
    "vote for old logs": (vote_for_old_logs, 0),
    "commit old epochs": (commit_old_epochs, 0),
    "lease too long": (lease_too_long, 0),
    "close without reports": (close_without_reports, 0),
}
"""Ways to break a rule, with the number of disks that have to be lost to see it."""
