"""Objects that a sender holds: those still to be sent, and those that can be repaired (its transmit cache)."""

from collections.abc import Callable, Iterator

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.events import Event, ObjectPurged
from fjm2.norm.core.ranges import OBJECT_ID

from .objects import SendObject, SendStream


class SendCache:
    """Objects by transport id, oldest first. To make room, the oldest ones that have been sent are purged."""

    def __init__(
        self,
        config: SenderConfig,
        first_id: int,
        has_confirmed: Callable[[int], bool],
        emit: Callable[[Event], None],
    ) -> None:
        self._config = config
        self._has_confirmed = has_confirmed
        """Function that returns True if no awaited receiver may still need what was sent up to a `sent_mark`."""
        self._is_room_wanted = False
        self._refused_bytes: int | None = None
        """Smallest size in bytes refused since the last change. This size, or a larger one, would be refused again."""
        self._objects: dict[int, SendObject] = {}
        self._bytes = 0
        self._count = 0
        self.next_id = first_id
        """Transport id of the next object."""
        self._emit = emit

    @property
    def free_bytes(self) -> int:
        """Bytes that fit without purging anything."""
        return self._config.cache_bytes - self._bytes

    def get(self, object_id: int) -> SendObject | None:
        """Return an object, or None if it is not held."""
        return self._objects.get(object_id)

    def __iter__(self) -> Iterator[SendObject]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def has_room(self, size: int) -> bool:
        """Return True if an object of this size fits, if necessary after purging objects that have been sent."""
        if self._refused_bytes is not None and size >= self._refused_bytes:
            return False
        self._is_room_wanted = not self._could_fit(size)
        self._refused_bytes = size if self._is_room_wanted else None
        return not self._is_room_wanted

    def note_change(self) -> None:
        """Forget earlier refusals: something was sent, repaired or confirmed, so there may be room now."""
        self._refused_bytes = None

    def make_room(self) -> None:
        """Purge everything that can be purged now, if room was refused before."""
        if self._is_room_wanted:
            self._is_room_wanted = False
            for item in [item for item in self if self._is_purgeable(item)]:
                self.remove(item)

    def _could_fit(self, size: int) -> bool:
        count, held = len(self._objects), self._bytes
        for item in self._objects.values():
            if self._fits(count, held, size):
                return True
            if self._is_purgeable(item):
                count, held = count - 1, held - item.memory_bytes
        return self._fits(count, held, size)

    def add(self, item: SendObject) -> None:
        """Add an object, and purge older ones if need be. The caller has checked that there is room."""
        for old in list(self._objects.values()):
            if self._fits(len(self._objects), self._bytes, item.memory_bytes):
                break
            if self._is_purgeable(old):
                self.remove(old)
        self._count += 1
        item.order = self._count
        self._objects[item.id] = item
        self._bytes += item.memory_bytes
        self.next_id = OBJECT_ID.add(item.id, 1)

    def remove(self, item: SendObject) -> None:
        """Remove an object. Requests for it are answered by SQUELCH from now on."""
        if self._objects.pop(item.id, None) is not None:
            self.note_change()
            self._bytes -= item.memory_bytes
            item.close()
            self._emit(ObjectPurged(item.id))

    def between(self, first_id: int, last_id: int) -> tuple[list[SendObject], bool]:
        """Return the objects held from `first_id` to `last_id`, and True if no object of that range was removed."""
        span = OBJECT_ID.distance(first_id, last_id)
        if span < 0:
            return [], True
        if span < len(self._objects):
            ids = (OBJECT_ID.add(first_id, step) for step in range(span + 1))
            held = [self._objects[object_id] for object_id in ids if object_id in self._objects]
        else:
            held = [item for item in self if 0 <= OBJECT_ID.distance(first_id, item.id) <= span]
        past_end = max(0, OBJECT_ID.distance(self.next_id, last_id) + 1)
        return held, len(held) >= span + 1 - past_end

    def _fits(self, count: int, held: int, size: int) -> bool:
        # A single object may exceed the bound: it could never be sent otherwise.
        return count < self._config.cache_objects and (held + size <= self._config.cache_bytes or count == 0)

    def _is_purgeable(self, item: SendObject) -> bool:
        is_open = isinstance(item, SendStream) and not item.ring.is_ended
        has_repairs = bool(item.repairs.due or item.repairs.requested)
        return item.is_sent and not is_open and not has_repairs and self._has_confirmed(item.sent_mark)
