"""Settings, counters, timers and buffers that all parts of a sender share."""

from collections.abc import Callable
from dataclasses import dataclass

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.events import Event
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import TimerTable

from .cache import SendCache
from .timing import Timing
from .trains import TrainMaker


@dataclass(slots=True)
class SenderContext:
    """Settings, counters, timers and buffers that all parts of one sender share."""

    config: SenderConfig
    stats: Stats
    emit: Callable[[Event], None]
    """Function that passes an event to the application."""
    timers: TimerTable
    timing: Timing
    trains: TrainMaker
    cache: SendCache
