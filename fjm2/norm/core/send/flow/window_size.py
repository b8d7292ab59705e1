"""Size of the flow-control window, which depends on losses, and on the time that confirmations take."""

import math
from collections import deque

from fjm2.norm.core.config import SenderConfig

_START_BYTES = 2 << 20
"""Size of the window at the start. It fills a fast local network at once, and fits into usual receive buffers."""
_MIN_BYTES = 256 << 10
"""Size of the smallest window. Below it, waiting for confirmations costs more than the losses that this avoids."""
_LIKELY_BUFFER_BYTES = 6 << 20
"""Bytes of data that a receiver's kernel can most likely buffer. Receivers ask it for 8 MiB, of which headers and
overhead take a part."""
_GROWTH_NEAR_CEILING = 0.01
"""Segments by which the window grows for each confirmed segment close to the ceiling. Further below, it grows by 1."""
_NEAR_CEILING_RATIO = 0.8
"""Share of the ceiling from which growth slows down."""
_CEILING_DROP_RATIO = 0.75
"""New ceiling as a share of the window that lost data. The margin allows for buffers that are not empty."""
_QUEUE_S = 0.025
"""Delay in seconds that shows a queue. If two confirmations in a row, without loss, take longer than the round trip by
more than this delay, and also by more than another round trip, data queue up in a receiver's buffer. A single slow
confirmation may come from a busy application.
"""
_TIMES_KEPT_MAX = 64
"""Number of confirmation times remembered. The shortest of them is taken as the round trip."""
_OVERRUN_IGNORED_RATIO = 0.08
"""Largest ratio of loss, beyond that of the network itself, that does not shrink the window."""
_DEVIATIONS = 4.0
"""Number of standard deviations by which loss may exceed the mean through chance alone."""
_LOSSES_KEPT_MAX = 8
"""Number of loss ratios remembered. The smallest of them is taken as the loss of the network itself."""
_SHRINK_MIN_RATIO = 0.5
"""Smallest factor by which a queue in a receiver's buffer shrinks the window."""
_SEGMENTS_MIN = 2
"""Fewest segments in a window, so that one can be on its way while another is being confirmed."""


class WindowSize:
    """Size of the window in segments. It grows with confirmed data, and shrinks when receivers queue or lose data."""

    __slots__ = (
        "_ceiling",
        "_confirm_times_s",
        "_is_fixed",
        "_last_lost",
        "_losses",
        "_repairs",
        "_sent_before",
        "max_segments",
        "min_segments",
        "segments",
    )

    def __init__(self, config: SenderConfig) -> None:
        segment_bytes = config.segment_bytes
        self.max_segments = max(_SEGMENTS_MIN, config.window_bytes // segment_bytes)
        self.min_segments = max(_SEGMENTS_MIN, min(self.max_segments, _MIN_BYTES // segment_bytes))
        self._is_fixed = config.cc
        """True with congestion control, whose rate already follows losses: the window keeps its size."""
        start_bytes = config.window_bytes if config.cc else _START_BYTES
        self.segments = min(self.max_segments, max(_SEGMENTS_MIN, start_bytes // segment_bytes))
        """Current size of the window in segments."""
        self._ceiling = min(self.max_segments, max(_SEGMENTS_MIN, _LIKELY_BUFFER_BYTES // segment_bytes))
        """Size of the last window that proved too large; before that, a size that is likely too large."""
        self._losses: deque[float] = deque(maxlen=_LOSSES_KEPT_MAX)
        """Ratio of segments requested again, for each of the last marks."""
        self._repairs = 0
        """Number of segments requested again since the last mark was confirmed."""
        self._sent_before = 0
        """Number of segments that had been sent when the last mark was confirmed."""
        self._last_lost = (0, 0)
        """Number of segments requested again, and number of segments sent, between the last two marks."""
        self._confirm_times_s: deque[float] = deque(maxlen=_TIMES_KEPT_MAX)
        """Time in seconds that each of the last confirmations took."""

    def note_requested(self, count: int) -> None:
        """Count segments that receivers requested again."""
        self._repairs += count

    def pass_over(self, sent: int) -> None:
        """Learn nothing from a mark that a silent receiver delayed. `sent` is the total sent so far."""
        self._repairs, self._sent_before = 0, sent

    def resize(self, confirmed: int, sent: int, took_s: float) -> int:
        """Adapt the size after a mark was confirmed, and return the new size.

        `confirmed` is the number of segments that the mark confirms, `sent` the total sent so far, and `took_s` the
        time since the mark was first announced.
        """
        repairs, sent_since = self._repairs, sent - self._sent_before
        self._repairs, self._sent_before = 0, sent
        last_s = self._confirm_times_s[-1] if self._confirm_times_s else 0.0
        self._confirm_times_s.append(took_s)
        round_trip_s = min(self._confirm_times_s)
        queued_s, tolerated_s = min(took_s, last_s) - round_trip_s, max(_QUEUE_S, round_trip_s)
        if self._is_fixed:
            return self.segments
        # Requests arrive some time after the loss. Two marks together even that out.
        before, self._last_lost = self._last_lost, (repairs, sent_since)
        total = max(before[1] + sent_since, confirmed)
        loss = min((before[0] + repairs) / total, 1.0)
        self._losses.append(loss)
        # Loss that occurs at any window size is the network's. Loss beyond that comes from a buffer that overflows.
        chance = _DEVIATIONS * math.sqrt(sum(self._losses) / len(self._losses) / total)
        overrun = loss - min(self._losses) - chance
        if overrun > _OVERRUN_IGNORED_RATIO:
            self._ceiling = max(self.min_segments, int(self.segments * _CEILING_DROP_RATIO))
            self.segments = max(self.min_segments, int(self._ceiling * (1.0 - overrun / 2)))
        elif queued_s > tolerated_s and not loss:
            self._ceiling = self.segments
            ratio = max(tolerated_s / queued_s, _SHRINK_MIN_RATIO)
            self.segments = max(self.min_segments, int(self.segments * ratio))
        else:
            is_far = self.segments < self._ceiling * _NEAR_CEILING_RATIO
            growth = confirmed * (1.0 if is_far else _GROWTH_NEAR_CEILING)
            self.segments = min(self.max_segments, self.segments + int(growth))
        return self.segments
