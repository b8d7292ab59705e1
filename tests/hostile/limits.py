"""Limits that the engine promises, and functions that measure the engine: time, events, bytes sent, memory, containers.

`Broken` is raised when a limit is exceeded.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.config import ReceiverConfig, SessionConfig
from fjm2.norm.core.engine import Engine

SLOWEST_S = 0.05
SLOWEST_PER_BYTE_S = 1.5e-6
"""Extra time for each byte: a datagram of 64 KiB may take longer than one of 100 bytes."""
MEAN_MOST_S = 200e-6
EVENTS_AT_ONCE = 600
"""Maximum number of events that one short train may cause. They are many if all objects of a window are lost at once.
"""
AMPLIFICATION_MOST = 12.0
AMPLIFICATION_FREE = 4096
"""Bytes that the target may send to any address, in addition to a multiple of the bytes received from there."""
HEADERS_BYTES = 28
"""Length of the headers of IP and UDP, which a sender has to pay for too."""
RESIDENT_FREE = 150 << 20


class Broken(Exception):  # noqa: N818 - the text says what is broken
    """Raised when a promised limit does not hold."""


def elements_allowed(config: SessionConfig) -> int:
    """Return the largest number of elements that all containers of an engine may have together."""
    receiver, sender = config.receiver or ReceiverConfig(), config.sender
    own = 60 * sender.cache_objects + 8 * (sender.cache_bytes + 4 * sender.stream_bytes) // sender.segment_bytes
    remote = receiver.senders_max * (3 * 2048 + 40 * receiver.objects_max)
    return own + remote + receiver.total_bytes_max // 40 + 50_000


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def count_elements(engine: Engine) -> tuple[int, int]:
    """Return the number of elements in all containers of an engine, however nested, and the bytes of its arrays."""
    total = array_bytes = 0
    seen: set[int] = set()
    waiting: list[Any] = [engine]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            total += len(thing)
            waiting += thing.keys()
            waiting += thing.values()
        elif isinstance(thing, (list, set, frozenset, deque, tuple)):
            total += len(thing)
            if not (thing and isinstance(next(iter(thing)), (int, float, bytes))):
                waiting += thing
        elif isinstance(thing, RangeSet):
            total += 2 * thing.range_count
        elif isinstance(thing, np.ndarray):
            array_bytes += 0 if isinstance(thing.base, np.ndarray) else thing.nbytes
        elif type(thing).__module__.startswith("fjm2.") and not isinstance(thing, (type, Enum)):
            waiting += _attributes(thing)
        elif hasattr(thing, "__self__"):
            waiting.append(thing.__self__)
    return total, array_bytes


def _attributes(thing: object) -> Iterator[object]:
    yield from getattr(thing, "__dict__", {}).values()
    for name in _slots(type(thing)):
        if hasattr(thing, name):
            yield getattr(thing, name)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if isinstance(name, str))
