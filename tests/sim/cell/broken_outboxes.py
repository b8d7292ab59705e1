"""Ways to break the rules of an outbox, each by changing one decision of the code."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fjm2.cell.client import closings
from fjm2.cell.client.outgoing import LedgerFinal
from fjm2.outbox.lives import Life
from fjm2.outbox.outbox import Outbox
from fjm2.outbox.outbox_lane import OutboxLane

Patch = pytest.MonkeyPatch


def send_again_without_asking(patch: Patch) -> None:
    """Messages that are not known to be stored are sent again at once in another ledger."""
    advance = OutboxLane._advance

    def advance_settled(self: OutboxLane) -> None:
        self._is_settled = True
        advance(self)

    patch.setattr(OutboxLane, "_advance", advance_settled)


def send_nothing_again(patch: Patch) -> None:
    """Everything that was sent counts as stored."""
    final = OutboxLane.handle_final

    def handle_final(self: OutboxLane, ledger: Any, through: int, now: float) -> None:
        final(self, ledger, through + 5, now)

    patch.setattr(OutboxLane, "handle_final", handle_final)


def believe_one_member(patch: Patch) -> None:
    """One member's word makes a final set, even of one that lacks some of it."""

    def receive_stored(self: Any, stored: Any) -> Iterator[LedgerFinal]:
        for progress in stored.progresses():
            if progress.is_closed and self._through.pop(progress.ledger, None) is not None:
                yield LedgerFinal(progress.ledger, progress.on_disk)

    patch.setattr(closings.Closings, "receive_stored", receive_stored)


def send_before_the_life_is_on_disk(patch: Patch) -> None:
    """Messages are sent before the disk remembers which ledger they are in."""
    flush = Outbox.flush

    def flush_late(self: Any) -> None:
        for lane in self.lanes.values():
            life = lane.poll_life()
            if life is not None:
                self._lives.append((lane.lane, life))
                lane.handle_life_written(life, 0.0)
        flush(self)

    written = OutboxLane.handle_life_written

    def handle_life_written(self: OutboxLane, life: Life, now: float) -> None:
        if life != self._life:
            written(self, life, now)

    patch.setattr(OutboxLane, "handle_life_written", handle_life_written)
    patch.setattr(Outbox, "flush", flush_late)


def send_before_the_message_is_on_disk(patch: Patch) -> None:
    """Messages count as being on disk when they are given to it."""
    flush = Outbox.flush

    def flush_early(self: Any) -> None:
        flush(self)
        group = self._group
        for lane, (first, frames) in group.messages.items() if group is not None else ():
            self._held[lane].add(first, frames)
            if self.lanes[lane].durable < first:
                self.lanes[lane].handle_durable(first + len(frames) - 1)
        if group is not None:
            self._group = replace(group, messages={})

    patch.setattr(Outbox, "flush", flush_early)


def remember_what_was_only_sent(patch: Patch) -> None:
    """The disk has it that messages are stored when they were sent."""

    def newly_stored(self: Any) -> dict[int, int]:
        return {lane: each.sent for lane, each in self.lanes.items() if each.sent > self.store.stored(lane)}

    patch.setattr(Outbox, "_newly_stored", newly_stored)


BROKEN: dict[str, Callable[[Patch], None]] = {
    "send again without asking": send_again_without_asking,
    "send nothing again": send_nothing_again,
    "believe one member": believe_one_member,
    "send before the life is on disk": send_before_the_life_is_on_disk,
    "send before the message is on disk": send_before_the_message_is_on_disk,
    "remember what was only sent": remember_what_was_only_sent,
}
"""Ways to break a rule."""
