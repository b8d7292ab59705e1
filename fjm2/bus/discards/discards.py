"""Notices of lost messages, both ways: of what this process loses, and of what subscribers lost of ours."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fjm2.bus.lane import Lanes
from fjm2.bus.presence import PresenceTable
from fjm2.bus.reports import BusReport, LostAfterConfirmation

from .notice import Notice, decode

_INTERVAL_S: Final = 1.0
"""Losses within this time are told together: there may be thousands."""
_SENDERS_MAX: Final = 256
"""Senders whose losses wait to be told. A process that loses messages of more has another problem."""
_NOTICES_MAX: Final = 16
"""Notices sent at once. The others follow."""
_HEARD_MAX: Final = 1024
"""Subscribers of which the last notice is remembered, so that its copy is not reported again."""


class Discards:
    """Tells publishers what this process lost, and reports what subscribers lost after they had confirmed it."""

    def __init__(self, lanes: Lanes, presence: PresenceTable, report: Callable[[BusReport], None]) -> None:
        self._lanes = lanes
        self._presence = presence
        self._report = report
        self.on_heard: Callable[[int], None] = lambda _: None
        """Called with the node id of a subscriber whose consumers did not get messages of ours."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[int, int]] = {}
        """Messages and bytes lost and not told yet, by sender."""
        self._undelivered: set[int] = set()
        """Senders of which messages were lost before any consumer got them."""
        self._again: list[Notice] = []
        """Notices that are sent a second time: datagrams get lost."""
        self._number = 0
        self._sent_at = -_INTERVAL_S
        self._heard: OrderedDict[tuple[int, int], int] = OrderedDict()
        """Number of the last notice, by the node that sent it and our lane."""

    def note_undelivered(self, sender_id: int, messages: int = 0, size: int = 0) -> None:
        """Note messages that were lost before any consumer got them: they must not count as confirmed."""
        if len(self._undelivered) < _SENDERS_MAX:
            self._undelivered.add(sender_id)
        self.note(sender_id, messages, size)

    def note(self, sender_id: int, messages: int = 0, size: int = 0) -> None:
        """Note that messages of a sender were lost here. Numbers are 0 if they are not known."""
        is_full = len(self._waiting) >= _SENDERS_MAX and sender_id not in self._waiting
        if is_full or any(lane.node_id == sender_id for lane in self._lanes.all):
            return
        before = self._waiting.get(sender_id, (0, 0))
        self._waiting[sender_id] = before[0] + messages, before[1] + size
        if self._loop.time() >= self._sent_at + _INTERVAL_S:
            self.tell()

    def tell(self) -> None:
        """Send the notices that wait. Call this every second."""
        if not self._waiting and not self._again:
            return
        if not self._lanes.is_open:
            return
        self._sent_at = self._loop.time()
        again, self._again = self._again, []
        for sender_id in list(self._waiting)[:_NOTICES_MAX]:
            self._number = (self._number + 1) & 0xFFFF
            is_undelivered = sender_id in self._undelivered
            self._undelivered.discard(sender_id)
            self._again.append(Notice(self._number, sender_id, *self._waiting.pop(sender_id), is_undelivered))
        for notice in (*again, *self._again):
            self._lanes.session.send_command(notice.encode())

    def hear(self, node_id: int, content: bytes) -> bool:
        """Read the notice of a subscriber. Return False if it is malformed.

        PERSISTENT messages that are not confirmed yet fail. The notice is reported if that subscriber has confirmed
        something: otherwise the publisher knows as it is.
        """
        notice = decode(content)
        if notice is None:
            return False
        lane = next((lane for lane in self._lanes.with_streams if lane.node_id == notice.sender_id), None)
        if lane is None:
            return True
        has_confirmed = node_id in lane.confirmed_by
        is_failure = notice.is_undelivered and (
            has_confirmed if lane.wants_all else node_id in self._presence.receivers(lane.topics)
        )
        if not (has_confirmed or is_failure):
            return True
        key = node_id, lane.number
        if self._heard.get(key) == notice.number:
            return True
        self._heard.pop(key, None)
        self._heard[key] = notice.number
        if len(self._heard) > _HEARD_MAX:
            self._heard.popitem(last=False)
        if is_failure:
            self.on_heard(node_id)
        if not has_confirmed:
            return True
        name = self._presence.names.of(node_id)
        messages, size = notice.lost_messages or None, notice.lost_bytes or None
        self._report(LostAfterConfirmation(node_id, lane.number, name, messages, size))
        return True
