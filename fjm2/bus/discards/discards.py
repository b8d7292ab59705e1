"""Notices of lost messages, both ways: of what this process loses, and of what subscribers lost of ours."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from fjm2.bus.lane import Lane, Lanes
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
        self._waiting: dict[int, Notice] = {}
        """Losses that are not told yet, by sender. Each gets its number when it is told."""
        self._again: list[Notice] = []
        """Notices that are sent a second time: datagrams get lost."""
        self._number = 0
        self._sent_at = -_INTERVAL_S
        self._heard: OrderedDict[tuple[int, int], int] = OrderedDict()
        """Number of the last notice, by the node that sent it and our lane."""
        self._early: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()
        """Messages and bytes lost by subscribers that have confirmed nothing yet, by node and our lane."""

    def note_undelivered(self, sender_id: int, messages: int = 0, size: int = 0) -> None:
        """Note messages that were lost before any consumer got them: they must not count as confirmed."""
        self.note(sender_id, messages, size, is_undelivered=True)

    def note(self, sender_id: int, messages: int = 0, size: int = 0, *, is_undelivered: bool = False) -> None:
        """Note that messages of a sender were lost here. Numbers are 0 if they are not known."""
        is_full = len(self._waiting) >= _SENDERS_MAX and sender_id not in self._waiting
        if is_full or any(lane.node_id == sender_id for lane in self._lanes.all):
            return
        before = self._waiting.get(sender_id) or Notice(0, sender_id)
        self._waiting[sender_id] = Notice(
            0,
            sender_id,
            before.lost_messages + messages,
            before.lost_bytes + size,
            before.is_undelivered or is_undelivered,
        )
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
            self._again.append(replace(self._waiting.pop(sender_id), number=self._number))
        for notice in (*again, *self._again):
            self._lanes.session.send_command(notice.encode())

    def hear(self, node_id: int, content: bytes) -> bool:
        """Read the notice of a subscriber. Return False if it is malformed.

        PERSISTENT messages that are not confirmed yet fail. The notice is reported once that subscriber has confirmed
        something, be it later: until then the publisher knows as it is.
        """
        notice = decode(content)
        if notice is None:
            return False
        lane = next((lane for lane in self._lanes.with_streams if lane.node_id == notice.sender_id), None)
        if lane is None:
            return True
        has_confirmed = node_id in lane.confirmed_upto
        is_subscriber = self._is_subscriber(node_id, lane)
        if not (has_confirmed or is_subscriber):
            return True
        key = node_id, lane.number
        if self._heard.get(key) == notice.number:
            return True
        self._heard.pop(key, None)
        self._heard[key] = notice.number
        if len(self._heard) > _HEARD_MAX:
            self._heard.popitem(last=False)
        if notice.is_undelivered and (has_confirmed if lane.wants_all else is_subscriber):
            self.on_heard(node_id)
        if has_confirmed:
            self._report_lost(node_id, lane, notice.lost_messages, notice.lost_bytes)
        else:
            messages, size = self._early.pop(key, (0, 0))
            self._early[key] = messages + notice.lost_messages, size + notice.lost_bytes
            if len(self._early) > _HEARD_MAX:
                self._early.popitem(last=False)
        return True

    def note_confirmed(self, lane: Lane, nodes: Iterable[int]) -> None:
        """Report what subscribers lost of a lane before they confirmed something of it for the first time."""
        if not self._early:
            return
        for node_id in nodes:
            lost = self._early.pop((node_id, lane.number), None)
            if lost is not None:
                self._report_lost(node_id, lane, *lost)

    def _is_subscriber(self, node_id: int, lane: Lane) -> bool:
        """Return True if a node is known that subscribes to what a lane sends."""
        if lane.wants_all:
            return any(peer.node_id == node_id and not peer.is_keeper for peer in self._presence.peers)
        return node_id in self._presence.subscriber_nodes(lane.topics)

    def _report_lost(self, node_id: int, lane: Lane, messages: int, size: int) -> None:
        name = self._presence.names.of(node_id)
        self._report(LostAfterConfirmation(node_id, lane.number, name, messages or None, size or None))
