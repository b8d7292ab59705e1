"""Queue of NORM_CMD messages (RFC 5740, 4.2.3). Each message is built when its turn comes, with current values."""

from collections import deque
from collections.abc import Callable

from fjm2.norm.core.events import CommandSent
from fjm2.norm.core.ranges import OBJECT_ID
from fjm2.norm.core.timers import Timer, wire_time
from fjm2.norm.core.wire import (
    REPAIR_ADV_LIMIT,
    AckRequest,
    Application,
    CongestionControl,
    EndOfTransmission,
    Message,
    Position,
    Rate,
    RepairAdv,
    Squelch,
    payload_id_format,
)

from .context import SenderContext
from .repair import RepairQueue
from .trains import SenderFields

_OBJECT_ID_BYTES = 2
"""Size in bytes of one entry in a SQUELCH's list of invalid objects."""
_ADVERTISEMENTS_PER_GRTT = 4
"""Most REPAIR_ADVs in one round trip: enough to suppress NACKs, few enough not to add to the load."""

BuildMessage = Callable[[SenderFields, float], Message]


class CommandQueue:
    """Queue of commands in the order in which they were requested, and of commands to repeat."""

    def __init__(self, context: SenderContext, repair_queue: RepairQueue) -> None:
        self.pending: deque[BuildMessage] = deque()
        """Functions that build the next messages from the sender's common fields and the time."""
        self._config = context.config
        self._cache = context.cache
        self._repair_queue = repair_queue
        self._timing = context.timing
        self._timers = context.timers
        self._stats = context.stats
        self._emit = context.emit
        self._repetitions: deque[tuple[bytes, int]] = deque()
        """Application commands, each with the number of times that it is still to be sent."""
        self._squelch_at = 0
        """Position in the list of invalid objects at which the next SQUELCH begins if the list is too long for one."""
        self._is_advertisement_due = False

    def add_end(self) -> None:
        """Queue the CMD(EOT) that tells receivers that this sender leaves."""
        self.pending.append(lambda common, _: EndOfTransmission(**common))

    def add_squelch(self) -> None:
        """Queue a CMD(SQUELCH) that lists what cannot be repaired any more."""
        self.pending.append(self._build_squelch)

    def add_probe(self, now: float, is_sending: bool) -> None:
        """Queue a CMD(CC), the round-trip probe, and set the timer for the next one."""
        self.pending.append(self._build_probe)
        self._timers.set(Timer.PROBE, now + self._timing.probe(now, is_sending))

    def add_application(self, content: bytes, repetitions: int, now: float) -> None:
        """Queue a CMD(APPLICATION) that is sent `repetitions` times. Only repetitions wait for each other."""
        if repetitions == 1:
            self.pending.append(lambda common, _: Application(**common, content=content))
            self._emit(CommandSent())
            return
        self._repetitions.append((content, repetitions))
        if not self._timers.is_set(Timer.COMMAND):
            self._timers.set(Timer.COMMAND, now)

    def add_ack_request(self, ack_type: int, ack_id: int, nodes: tuple[int, ...]) -> None:
        """Queue a CMD(ACK_REQ), which asks nodes for an acknowledgement of the application."""
        self.pending.append(
            lambda common, _: AckRequest(**common, ack_type=ack_type, ack_id=ack_id, acking_nodes=nodes)
        )

    def repeat_application(self, now: float) -> None:
        """Queue the next repetition of an application command. The commands take turns."""
        content, left = self._repetitions.popleft()
        self.pending.append(lambda common, _: Application(**common, content=content))
        if left > 1:
            self._repetitions.append((content, left - 1))
        else:
            self._emit(CommandSent())
        if self._repetitions:
            # Every waiting command gets its turn within two round trips.
            self._timers.set(Timer.COMMAND, now + 2 * self._timing.grtt_s / len(self._repetitions))

    def request_advertisement(self, now: float) -> None:
        """Schedule a CMD(REPAIR_ADV), which tells the group what was requested by unicast."""
        self._is_advertisement_due = True
        if not self._timers.is_set(Timer.ADVERTISE):
            self._timers.set(Timer.ADVERTISE, now)

    def advertise(self, now: float) -> None:
        """Queue a CMD(REPAIR_ADV) if one is due. It suppresses NACKs for parts that are being repaired already."""
        if not self._is_advertisement_due:
            return
        self._is_advertisement_due = False
        messages = self._repair_queue.requests(self._config.segment_bytes)
        if messages:
            flags = REPAIR_ADV_LIMIT if len(messages) > 1 else 0
            requests = messages[0]
            self.pending.append(lambda common, _: RepairAdv(**common, flags=flags, requests=requests))
        self._timers.set(Timer.ADVERTISE, now + self._timing.grtt_s / _ADVERTISEMENTS_PER_GRTT)

    def _build_squelch(self, common: SenderFields, _now: float) -> Squelch:
        """Build a SQUELCH that names the oldest object held (of a stream, its oldest block) and the gaps after it."""
        self._stats.squelches_sent += 1
        fec_id = self._config.fec.fec_id
        held = {item.id: item for item in self._cache}
        oldest = next(iter(held.values()), None)
        if oldest is None:
            return Squelch(**common, position=Position(fec_id, self._cache.next_id, 0))
        block = -(-oldest.first_held // self._config.block_segments)
        position = Position(fec_id, oldest.id, payload_id_format(fec_id).pack(block, 0))
        span = OBJECT_ID.distance(oldest.id, self._cache.next_id)
        ids = (OBJECT_ID.add(oldest.id, step) for step in range(span))
        invalid = tuple(object_id for object_id in ids if object_id not in held)
        fitting = self._config.segment_bytes // _OBJECT_ID_BYTES
        if len(invalid) > fitting:  # a stream outlives many objects: list some now, and the others next time
            at = self._squelch_at % len(invalid)
            invalid = (invalid[at:] + invalid[:at])[:fitting]
            self._squelch_at = at + fitting
        return Squelch(**common, position=position, invalid_objects=invalid)

    def _build_probe(self, common: SenderFields, now: float) -> CongestionControl:
        seconds, microseconds = wire_time(now)
        return CongestionControl(
            **common,
            cc_sequence=self._timing.cc_sequence,
            send_time_s=seconds,
            send_time_us=microseconds,
            nodes=self._timing.nodes,
            extensions=(Rate(self._timing.rate_q),),
        )
