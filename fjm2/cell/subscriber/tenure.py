"""Questions to the cell about sessions that it may have ended."""

from typing import Generic

from .context import Context
from .outgoing import F, SessionsKept
from .session import ClientSession, SessionState


class Tenure(Generic[F]):
    """Asks the cell about the sessions of a connection when it is not certain that they hold."""

    def __init__(self, context: Context[F], sessions: dict[int, ClientSession[F]]) -> None:
        self._context = context
        self._sessions = sessions

    @property
    def until(self) -> float:
        """Time until which the cell keeps the open sessions for certain; before all times while it is asked.

        After it others may have got and acknowledged what was delivered here, so that the owner uses nothing of it: it
        calls `doubt`, unless the cell is asked already, and waits for `SessionsKept`.
        """
        return self._context.trust.until

    @property
    def is_asked(self) -> bool:
        """True while the cell is asked which sessions it keeps."""
        return self._context.trust.is_broken

    def doubt(self, now: float) -> None:
        """Ask the cell which sessions it keeps: the owner was silent for longer than anything here tells.

        `SessionLost` follows for those that it does not keep, and then `SessionsKept`.
        """
        self._ask(now)
        if not self.is_asked:
            self._context.events.append(SessionsKept())

    def note_renewal(self, now: float) -> None:
        """Note that leases are renewed."""
        if self._context.trust.is_renewed_late(now):
            self._ask(now)

    def note_heard(self, now: float) -> None:
        """Note that the manager was heard."""
        if self._context.trust.is_heard_late(now):
            self._ask(now)

    def _ask(self, now: float) -> None:
        context = self._context
        found = {number: each for number, each in self._sessions.items() if each.state is SessionState.OPEN}
        context.trust.begin_round(set(found), now)
        for session in found.values():
            session.ask(context.trust.round)
            if context.cell_id:
                session.pump(now)
