"""Adoption of changes in the file: commands make and revoke tokens, and remove nodes, while the service runs."""

import asyncio
import contextlib
from time import monotonic

from ..errors import StoreError
from .announcements import Announcements
from .members import Members
from .nodes import Registry
from .store import Store
from .tokens import Token, TokenBook
from .writer import Writer

_LOOK_AGAIN_S = 0.2
"""Shortest time between two looks at the file for unknown tokens: strangers who guess tokens cause no load."""


class FileFollower:
    """Adoption of the changes that other processes make in the file."""

    def __init__(
        self, writer: Writer, tokens: TokenBook, nodes: Registry, members: Members, announcements: Announcements
    ) -> None:
        self._writer = writer
        self._tokens = tokens
        self._nodes = nodes
        self._members = members
        self._announcements = announcements
        self._file_state = 0
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")

    async def begin(self) -> None:
        """Read the tokens, and note the state of the file."""
        self._file_state = await self._writer.run(Store.changes_by_others)
        self._tokens.replace(await self._writer.run(Store.tokens))

    async def follow(self) -> None:
        """Adopt the changes in the file since the last call. Raise StoreError if the file cannot be read."""
        state = await self._writer.run(Store.changes_by_others)
        if state == self._file_state:
            return
        self._tokens.replace(await self._writer.run(Store.tokens))
        # Look at memory first: a node that is in memory by now is in the file when the file's ids are read.
        known = self._nodes.ids()
        for node_id in known - await self._writer.run(Store.node_ids):
            self._members.drop(node_id, "removed")
        self._announcements.update_targets()
        self._file_state = state
        self._announcements.live.recheck()

    async def token_of(self, text: str) -> Token | None:
        """Return the live token that has this text, or None.

        If no such token is in memory, read the file again: the token may be new.
        """
        token = self._tokens.find(text)
        if token is None and self._tokens.is_well_formed(text):
            await self._look_again()
            token = self._tokens.find(text)
        return token

    async def _look_again(self) -> None:
        """Call `follow`, at most once in `_LOOK_AGAIN_S`. Callers that come while it runs share the next call."""
        asked_at = monotonic()
        async with self._looking:
            if self._looked_at >= asked_at:
                return
            await asyncio.sleep(max(0.0, self._looked_at + _LOOK_AGAIN_S - asked_at))
            self._looked_at = monotonic()
            with contextlib.suppress(StoreError):
                await self.follow()
