"""The replay group, one port above the bus: keepers send there what others lack, and those that lack it listen.

A message has frames of the bus end to end, unchanged.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fjm2.base.errors import FJM2Error
from fjm2.messages.frame import Frame, FrameReader
from fjm2.norm import Session

from ..config import BusConfig

REPLAY_IDLE_S: Final = 5.0
"""Time after the last question for which a node stays in the group."""
_LOOK_S: Final = 0.01
"""Interval at which a listener looks whether there is room again. Senders wait meanwhile."""


def replay_config(config: BusConfig) -> BusConfig:
    """Return the settings of the replay group of a bus."""
    return replace(config, port=config.port + 1)


class ReplayListener:
    """Receives what was asked for. It is a member of the group only while something is."""

    def __init__(
        self, config: BusConfig, take_frames: Callable[[int, list[Frame]], None], has_room: Callable[[], bool]
    ) -> None:
        """`take_frames` gets the node of the keeper that sends, and frames, while `has_room` returns True."""
        self._config = replay_config(config)
        self._take_frames, self._has_room = take_frames, has_room
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Listen for answers for a while."""
        self._until = self._loop.time() + REPLAY_IDLE_S
        if self._task is None:
            session = self._config.session()
            session.is_counted_alone = False
            try:
                session.open()
            except (FJM2Error, OSError):
                return  # the interface is away, as it is for the bus; the next question tries again
            self._task = asyncio.ensure_future(self._listen(session))

    async def _listen(self, session: Session) -> None:
        try:
            messages = session.messages()
            incoming = aiter(messages)
            while (left_s := self._until - self._loop.time()) > 0:
                try:
                    async with asyncio.timeout(left_s):
                        message = await anext(incoming)
                except TimeoutError:
                    incoming = aiter(messages)
                    continue
                while not self._has_room():  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
                self._take_frames(messages.sender_id, FrameReader().feed(message, (0,)))
        finally:
            self._task = None
            await session.close()

    async def close(self) -> None:
        """Leave the group."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
