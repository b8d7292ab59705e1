"""Keepers, by the status that each tells every few seconds."""

from typing import Final

from fjm2.keeper.status import STATUS_S, KeeperStatus, decode_status

_ALIVE_S: Final = 3 * STATUS_S
"""Age of the last status at which a keeper counts as gone."""
_KEEPERS_MAX: Final = 256
"""Most keepers that are remembered. It bounds the memory that forged statuses can take."""


class Keepers:
    """The keepers that are heard."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[KeeperStatus, float]] = {}

    def take(self, content: bytes, now: float) -> None:
        """Handle a command. Others than statuses are ignored."""
        status = decode_status(content)
        if status is not None and (status.keeper_id in self._found or len(self._found) < _KEEPERS_MAX):
            self._found[status.keeper_id] = status, now

    def alive(self, now: float) -> list[KeeperStatus]:
        """Return the keepers that are there, and forget the others."""
        self._found = {key: each for key, each in self._found.items() if now - each[1] < _ALIVE_S}
        return [status for status, _ in self._found.values()]
