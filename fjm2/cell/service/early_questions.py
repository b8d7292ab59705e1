"""Questions of consumers that a keeper does not know yet."""

from typing import Final

from fjm2.cell.wire.catch_up import CatchUpQuery

QUESTIONS_MAX: Final = 64
"""Most questions that wait. Anybody can ask in the name of a consumer that never was."""


class EarlyQuestions:
    """Questions that wait for the next decisions: a consumer may learn of its own a moment before a keeper has applied
    them, and would ask again only much later."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], CatchUpQuery] = {}
        """The last question of each consumer, by session and number. Those that came first are in front."""

    def add(self, query: CatchUpQuery) -> None:
        """Have a question wait, instead of the one before of the same consumer."""
        key = query.session, query.consumer
        self._waiting.pop(key, None)
        self._waiting[key] = query
        if len(self._waiting) > QUESTIONS_MAX:
            del self._waiting[next(iter(self._waiting))]

    def take(self) -> list[CatchUpQuery]:
        """Return the questions, which wait no longer."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())
