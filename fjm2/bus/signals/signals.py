"""Passes NORM commands and acknowledgements of the application to the handlers of their kinds.

The first byte of a NORM_CMD(APPLICATION) is its kind. Acknowledgements, and requests for them, have a type from 16 to
255. Whatever has no handler is counted and ignored: later versions of FJM2 may send it, and so may anybody else.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from fjm2.norm.events import AckReceived, AckRequested

from ..statistics import BusStats

ANNOUNCEMENT: Final = 1
"""Kind of announcements of connections: their version stands in the first byte (`fjm2.bus.presence`)."""
HEARTBEAT: Final = 2
VOTE_REQUEST: Final = 3
VOTE: Final = 4
FETCH: Final = 5
FOUNDING: Final = 6
"""Kinds of messages between the keepers of a cell, 2 to 6."""
NOTICE: Final = 7
"""Kind of notices of lost messages (`fjm2.bus.discards.notice`)."""
CELL_QUESTION: Final = 14
"""Kind of the question whether a cell serves the bus, by which a new connection makes keepers tell at once what they
tell at intervals: the manager its heartbeat and table, and all that they are there."""
KIND_MAX: Final = 255

CommandHandler: TypeAlias = Callable[[int, bytes], None]
"""Called with the node id of the sender, and the content of a command, kind included. Both may be forged. It must not
raise."""
AckHandler: TypeAlias = Callable[[int, AckReceived], None]
"""Called with the number of the lane that an acknowledgement is for, and the acknowledgement. It must not raise."""
RequestHandler: TypeAlias = Callable[[AckRequested], None]
"""Called with a request for an acknowledgement. It must not raise."""

_Handler = TypeVar("_Handler")


class Signals:
    """Handlers of signals, by kind."""

    def __init__(self, stats: BusStats) -> None:
        self._stats = stats
        self._commands: dict[int, CommandHandler] = {}
        self._acks: dict[int, AckHandler] = {}
        self._requests: dict[int, RequestHandler] = {}

    def hear_commands(self, kind: int, handler: CommandHandler | None) -> None:
        """Call `handler` with all commands of a kind, or ignore them if it is None.

        Raise ValueError if the kind is no byte, or has a handler already.
        """
        _set(self._commands, kind, handler)

    def hear_acks(self, ack_type: int, handler: AckHandler | None) -> None:
        """Call `handler` with all acknowledgements of a type that come to a lane of this bus; see `hear_commands`.

        They are heard even while a consumer is full, so that senders who wait for them do not wait for it.
        """
        _set(self._acks, ack_type, handler)

    def hear_requests(self, ack_type: int, handler: RequestHandler | None) -> None:
        """Call `handler` with all requests for acknowledgements of a type; see `hear_acks`. Answer with
        `lane.session.send_ack`."""
        _set(self._requests, ack_type, handler)

    def handle_command(self, node_id: int, content: bytes) -> None:
        """Pass a command to its handler."""
        handler = self._commands.get(content[0]) if content else None
        if handler is not None:
            handler(node_id, content)
        elif content[:1] != bytes((CELL_QUESTION,)):  # every new connection asks it, and keepers alone answer
            self._stats.signals_unknown += 1

    def take_ack(self, lane: int, event: AckReceived | AckRequested) -> bool:
        """Pass an acknowledgement, or a request for one, to its handler. Return True: it need not wait."""
        if isinstance(event, AckReceived):
            handler = self._acks.get(event.ack_type)
            if handler is not None:
                handler(lane, event)
                return True
        else:
            answer = self._requests.get(event.ack_type)
            if answer is not None:
                answer(event)
                return True
        self._stats.signals_unknown += 1
        return True


def _set(handlers: dict[int, _Handler], kind: int, handler: _Handler | None) -> None:
    if not 0 <= kind <= KIND_MAX:
        raise ValueError(f"kind={kind}: expected 0 to {KIND_MAX}")
    if handler is None:
        handlers.pop(kind, None)
    elif kind in handlers:
        raise ValueError(f"kind={kind}: it has a handler already")
    else:
        handlers[kind] = handler
