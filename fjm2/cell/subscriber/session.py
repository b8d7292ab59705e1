"""One session of a connection at its cell: what it asks for, one thing after another, and its acknowledgements."""

from collections import deque
from enum import Enum, auto
from typing import Final, Generic, NamedTuple

from ..service.reasons import Reason
from ..subscription_table import key_for
from ..wire.ranges import Range
from ..wire.requests import Ack, Close, Open, Request, Return, Subscribe, Unsubscribe
from .consumer import Consumer
from .context import Context
from .outgoing import (
    ConsumerClosed,
    ConsumerRefused,
    F,
    Loss,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionRefused,
    Unsubscribed,
)

ACKS_FLYING_MAX: Final = 1
"""Most acknowledgements of a session that are not decided. What comes meanwhile goes into the next one: each costs all
processes together some milliseconds, however much it covers."""
HANDED_FLYING_MAX: Final = 4
"""The same for messages that the cell hands out. A consumer that holds many gets no others before it acknowledges."""
AUTO_MODE: Final = 1
"""JMS's mode in which the client waits until each acknowledgement is stored, and acknowledges one message at a time."""
AUTO_FLYING_MAX: Final = 16
"""The same in that mode, where an acknowledgement does not get larger by waiting: as many as an entry decides."""
RANGES_MAX: Final = 256
"""Most ranges of a request that the cell takes."""
_LATER: Final = (Reason.UNKNOWN_MESSAGES, Reason.TOO_SCATTERED)
"""Refusals of acknowledgements that came too early: the cell has not got the messages, or lacks those before them."""


class SessionState(Enum):
    """States of a session."""

    OPENING = auto()
    OPEN = auto()
    ENDED = auto()


class _Step(NamedTuple):
    """A request that waits until all before it are decided, and that those after it wait for."""

    request: Request
    handle: int
    """Consumer that it is about, or number of the call; 0 for the session."""


class ClientSession(Generic[F]):
    """A session. Implements `Asker`."""

    def __init__(
        self, context: Context[F], sessions: "dict[int, ClientSession[F]]", number: int, mode: int, client_id: str
    ) -> None:
        self.number: Final = number
        self.client_id: Final = client_id
        self.state = SessionState.OPENING
        self.consumers: dict[int, Consumer[F]] = {}
        """Consumers by handle, from the call on that asks for them."""
        self._context = context
        self._sessions = sessions
        self._steps: deque[_Step] = deque([_Step(Open(number, mode, client_id), 0)])
        self._step: _Step | None = None
        """The step that is not decided."""
        self._flying = 0
        """Acknowledgements and returns that are not decided."""
        self._is_auto = mode == AUTO_MODE
        self._returns: deque[Return] = deque()
        self._is_flushed = False
        """True if the next step waits only for what is on its way. Later acknowledgements wait for it."""
        self._marks: dict[int, Consumer[F]] = {}
        self._question = 0
        """Round of questions whether the cell keeps this session, if it is to be asked; otherwise 0."""
        self._questions: deque[int] = deque()
        """Rounds of the questions that are not decided."""

    # Asking

    def add_consumer(self, consumer: Consumer[F]) -> None:
        """Ask for a consumer."""
        self.consumers[consumer.handle] = consumer
        self._steps.append(_Step(consumer.request, consumer.handle))

    def close_consumer(self, consumer: Consumer[F]) -> None:
        """Ask to end a consumer."""
        self._steps.append(_Step(Close(self.number, (0,)), consumer.handle))

    def unsubscribe(self, name: str, number: int) -> None:
        """Ask to end a subscription."""
        self._steps.append(_Step(Unsubscribe(self.number, name), number))

    def close(self) -> None:
        """Ask to end the session."""
        self._steps.append(_Step(Close(self.number), 0))

    def give_back(self, ranges: list[Range]) -> None:
        """Ask to take ranges back."""
        for at in range(0, len(ranges), RANGES_MAX):
            self._returns.append(Return(self.number, tuple(ranges[at : at + RANGES_MAX])))

    def ask(self, round_: int) -> None:
        """Ask whether the cell keeps this session. The session goes on meanwhile."""
        self._question = round_

    def pump(self, now: float) -> None:
        """Send what may be sent."""
        context = self._context
        if self._question and context.line.has_room(now):
            self._questions.append(self._question)
            self._question = 0
            context.line.send(self, Ack(self.number, ()))
        while self.state is not SessionState.ENDED and self._step is None and context.line.has_room(now):
            request = self._next(now)
            if request is None:
                return
            context.line.send(self, request)

    def _next(self, now: float) -> Request | None:
        """Return the next request, and note that it is sent."""
        may_fly = not self._is_flushed and (self._flying < self._flying_max or bool(self._steps))
        ranges = self._collect(now) if may_fly else []
        if ranges:
            self._flying += 1
            return Ack(self.number, tuple(ranges))
        while self._returns and self.consumer_at(self._returns[0].ranges[0].consumer) is None:
            self._returns.popleft()  # the end of its consumer has given back everything
        if self._returns and may_fly:
            self._flying += 1
            return self._returns.popleft()
        self._is_flushed = bool(self._steps)
        if not self._steps or self._flying:
            return None
        step = self._step = self._steps.popleft()
        if isinstance(step.request, Close) and step.request.consumers:
            consumer = self.consumers.get(step.handle)
            if consumer is None or not consumer.number:
                return self._skip(now)  # it was refused, or has ended
            return Close(self.number, (consumer.number,))
        return step.request

    @property
    def _flying_max(self) -> int:
        """Most acknowledgements that may fly, if what waits for the next one goes with them."""
        if self._is_auto:
            return AUTO_FLYING_MAX
        waiting = ((consumer, reader) for consumer in self.consumers.values() for reader in consumer.dirty)
        is_handed = bool(self._returns) or any(consumer.is_handed(reader.ledger) for consumer, reader in waiting)
        return HANDED_FLYING_MAX if is_handed else ACKS_FLYING_MAX

    @property
    def is_blocked(self) -> bool:
        """Return True if something is to be sent when there is room for it."""
        return bool(self._question) or (self._step is None and bool(self._steps))

    def consumer_at(self, number: int) -> Consumer[F] | None:
        """Return the consumer that the cell knows by a number."""
        return next((each for each in self.consumers.values() if each.number == number), None)

    def _skip(self, now: float) -> Request | None:
        self._step = None
        return self._next(now)

    def _collect(self, now: float) -> list[Range]:
        """Return ranges that one request acknowledges. Those that the cell could not take before go alone."""
        ranges: list[Range] = []
        for consumer in self.consumers.values():
            if len(ranges) < RANGES_MAX:
                is_alone = consumer.acks.take(ranges, RANGES_MAX - len(ranges), now)
                if is_alone:
                    break
        return ranges

    # Learning

    def learn(self, request: Request, place: int, reason: Reason | None, now: float) -> None:
        """Take the decision on a request."""
        if self.state is SessionState.ENDED:
            return
        if reason is Reason.NO_SESSION and not isinstance(request, Open):
            self.lose(Loss.UNKNOWN)
        elif isinstance(request, Ack) and not request.ranges:
            round_ = self._questions.popleft()
            if reason is None:
                self._question = max(round_, self._question)
            else:
                self._context.note_answer(self.number, round_)
        elif isinstance(request, Ack | Return):
            self._flying -= 1
            self._learn_ranges(request, reason, now)
        elif self._step is not None:
            step, self._step, self._is_flushed = self._step, None, False
            if reason is None:
                self._steps.appendleft(step)
            else:
                self._learn_step(step, request, place, reason, now)
        self.pump(now)

    def _learn_ranges(self, request: Ack | Return, reason: Reason | None, now: float) -> None:
        if reason is None:
            self._is_flushed = False  # it goes again, before the step that waits
        if isinstance(request, Return) and reason is None:
            self._returns.append(request)
            return
        is_again = reason is None or (reason in _LATER and isinstance(request, Ack))
        by_number = {consumer.number: consumer for consumer in self.consumers.values() if consumer.number}
        for each in request.ranges:
            consumer = by_number.get(each.consumer)
            if consumer is None:
                continue
            if is_again:
                consumer.acks.fail(each, None if reason is None else now)
            else:
                consumer.acks.land(each, reason or Reason.GRANTED)
        for consumer in by_number.values():
            consumer.acks.settle()

    def _learn_step(self, step: _Step, request: Request, place: int, reason: Reason, now: float) -> None:
        events = self._context.events
        match request:
            case Open():
                if reason is Reason.GRANTED:
                    self.state = SessionState.OPEN
                    self._context.renew_at = now
                    events.append(SessionOpened(self.number))
                else:
                    self._end()
                    events.append(SessionRefused(self.number, reason))
            case Subscribe():
                self._learn_subscribe(step.handle, place, reason, now)
            case Unsubscribe():
                events.append(Unsubscribed(step.handle, reason))
            case Close() if step.handle:
                self._drop(step.handle)
                events.append(ConsumerClosed(step.handle))
            case Close():
                self._end()
                events.append(SessionClosed(self.number))
                self._context.note_answer(self.number, self._context.trust.round)
            case _:
                pass

    def _learn_subscribe(self, handle: int, place: int, reason: Reason, now: float) -> None:
        consumer = self.consumers[handle]
        if reason is not Reason.GRANTED:
            self._drop(handle)
            self._context.events.append(ConsumerRefused(handle, reason))
            return
        context = self._context
        request = consumer.request
        is_new = key_for(self.client_id, request.name, request.flags) in context.added
        consumer.attach(place & 0xFFFF_FFFF, context.table_version, is_resumed=not is_new, now=now)

    def _drop(self, handle: int) -> None:
        consumer = self.consumers.pop(handle, None)
        if consumer is not None:
            consumer.end()

    def _end(self) -> None:
        self.state = SessionState.ENDED
        for handle in list(self.consumers):
            self._drop(handle)
        self._steps.clear()
        self._returns.clear()
        self._context.line.forget(self)
        self._sessions.pop(self.number, None)

    def lose(self, loss: Loss) -> None:
        """End without being asked to."""
        if self.state is not SessionState.ENDED:
            self._end()
            self._context.events.append(SessionLost(self.number, loss))
            self._context.note_answer(self.number, self._context.trust.round)
