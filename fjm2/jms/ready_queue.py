"""The order in which a session's listeners get their turns. A turn costs the same whatever the number of consumers."""

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from fjm2.bus.inbox import Delivery, Inbox


class ReadyQueue:
    """Inboxes that have both a listener and messages for it.

    An inbox without messages has a `wake` that puts it here. While it is here, or has its turn, it has no `wake`, so
    that only the first of many messages costs a call.
    """

    def __init__(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` when there is an inbox again, after there was none."""
        self._on_ready = on_ready
        self._wakes: dict[Inbox, Callable[[], None]] = {}
        """The `wake` of each inbox that has a listener."""
        self._ready: deque[Inbox] = deque()
        """Inboxes that wait for their turn."""
        self._again: list[tuple[int, int, Inbox]] = []
        """Heap of the messages to deliver again: serial number, and inbox. Entries may be out of date."""
        self._current: Inbox | None = None
        """Inbox whose turn it is; None if there is none, or if it has its turn before it comes to the front."""

    @property
    def has_listener(self) -> bool:
        """True if an inbox of the session has a listener."""
        return bool(self._wakes)

    @property
    def has_old_order(self) -> bool:
        """True if messages may wait that the session had before. They come in their old order, whichever inboxes they
        are in."""
        return bool(self._again)

    def add(self, inbox: Inbox) -> None:
        """Give turns to an inbox, which has a listener from now on. Calling this twice does no harm."""
        if inbox in self._wakes:
            return
        self._wakes[inbox] = partial(self._put, inbox)
        for delivery in inbox.again:
            self._note_again(delivery)
        if inbox is self._current:
            return
        if inbox.has_waiting():
            self._put(inbox)
        else:
            inbox.wake = self._wakes[inbox]

    def remove(self, inbox: Inbox) -> None:
        """Give no more turns to an inbox that is closed, or has no listener any more."""
        if self._wakes.pop(inbox, None) is None:
            return
        if inbox.wake is None and inbox is not self._current:
            self._ready.remove(inbox)
        inbox.wake = None

    def put_again(self, delivery: Delivery) -> None:
        """Note that a message was put back into its inbox, to be delivered again."""
        inbox = delivery.inbox
        if inbox in self._wakes:
            self._note_again(delivery)
            if inbox.wake is not None:
                inbox.wake()

    def begin_turn(self) -> Inbox | None:
        """Return the inbox whose turn it is, or None if no inbox has messages. Call `end_turn` when the turn is over.

        Redelivered messages come first, in their old order. Other inboxes take turns, also while the inbox of the first
        redelivered message gives none: it has a `wake` after its own turn.
        """
        while self._again:
            serial, _, inbox = self._again[0]
            if inbox.again and inbox.again[0].serial == serial and inbox in self._wakes:
                if inbox.has_waiting():
                    return inbox
                break
            heappop(self._again)
        if not self._ready:
            return None
        self._current = inbox = self._ready.popleft()
        return inbox

    def end_turn(self, inbox: Inbox) -> None:
        """End the turn of an inbox. If it has more messages, it waits for another turn."""
        if inbox is self._current:
            self._current = None
            wake = self._wakes.get(inbox)
            if wake is not None:
                if inbox.has_waiting():
                    self._ready.append(inbox)
                else:
                    inbox.wake = wake

    def _put(self, inbox: Inbox) -> None:
        inbox.wake = None
        if not self._ready:
            self._on_ready()
        self._ready.append(inbox)

    def _note_again(self, delivery: Delivery) -> None:
        inbox = delivery.inbox
        heappush(self._again, (delivery.serial, id(inbox), inbox))
