"""Time from a request to its repair, as a receiver measures it."""

from fjm2.norm.core.response_time import ResponseTime

from .incoming_object import IncomingObject


class RepairTime:
    """Estimate of the time from a request to its repair. One segment at a time is measured."""

    __slots__ = ("_asked_at", "_asked_end", "_index", "_item", "_response_time")

    def __init__(self) -> None:
        self._response_time = ResponseTime()
        self._item: IncomingObject | None = None
        """Object of the last request."""
        self._asked_end = 0
        """Index after the last segment of that object that was requested."""
        self._index: int | None = None
        """Segment whose repair is being measured; None if there is none."""
        self._asked_at = 0.0

    def late_s(self, most_s: float) -> float:
        """Return the time in seconds after which a repair is late: at most `most_s`, and that if nothing is known."""
        return self._response_time.late_s(most_s)

    def note_request(self, item: IncomingObject, last: int, now: float) -> None:
        """Note a request that ends with segment `last`. Measure its repair if it is requested for the first time."""
        if self._item is not item:
            self._item, self._asked_end, self._index = item, 0, None
        if last < self._asked_end:
            return
        self._asked_end = last + 1
        if self._index is None:
            self._index, self._asked_at = last, now

    def note_arrivals(self, now: float, most_s: float) -> None:
        """End the measurement if the segment has arrived, or is late. No repair takes more than `most_s` seconds."""
        if self._index is None or self._item is None:
            return
        if self._index < self._item.first_wanted or self._index in self._item.received:
            self._index = None
            self._response_time.sample(now - self._asked_at)
        elif now - self._asked_at >= self.late_s(most_s):
            self._index = None
            self._response_time.note_late()
