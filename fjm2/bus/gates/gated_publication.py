"""A gate in front of a connection. It sees every frame before the network does, and may hold back the moment at which
the message counts as sent."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import Parts

from ..completions import Receipt, wait_until_stored
from ..confirmation import Confirmation
from ..publication import Publication, Publisher


class Gate(Protocol):
    """A hook that decides when messages of a connection count as sent.

    It can do something with each message first, such as write it to a journal, or wait until others have stored it.
    """

    def admit(self, destination: Destination, parts: Parts) -> "asyncio.Future[None] | None":
        """Take note of a frame just before the network gets it.

        Called once for each frame, in the order of publication. The frame is final and may be kept, as nobody changes
        it. Return None to let the message count as sent at once. Otherwise return a future, which messages may share:
        `send`, the outcome of an asynchronous send, and `commit` wait for it, and pass on the JMSError that it may
        raise. Raise JMSError to refuse the message: it is then not sent.
        """


class GatedPublication(Publication):
    """Publishes the frames of one connection after a gate has seen them."""

    is_gated = True

    def __init__(self, publisher: Publisher, confirmation: Confirmation, gate: Gate) -> None:
        super().__init__(publisher, confirmation)
        self._admit = gate.admit

    def publish(
        self, destination: Destination, priority: int, parts: Parts, flags: int = 0, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Pass the frame to the gate, then publish it. Without a receipt, the returned awaitable also waits for the
        gate's future."""
        stored = self._admit(destination, parts)
        waiting = super().publish(destination, priority, parts, flags, receipt)
        if stored is None:
            return waiting
        if receipt is None:
            return _wait_for_both(waiting, stored)
        receipt.add_stored(stored)
        return waiting

    def publish_many(
        self, destination: Destination, priority: int, frames: FrameArray, flags: int
    ) -> Awaitable[None] | None:
        """Publish frames one by one, as the gate may refuse each of them. Then wait for the gate's futures."""
        return self._publish_each(destination, priority, frames, flags)

    async def _publish_each(self, destination: Destination, priority: int, frames: FrameArray, flags: int) -> None:
        futures: dict[asyncio.Future[None], None] = {}
        for parts in frames.parts():
            stored = self._admit(destination, parts)
            waiting = super().publish(destination, priority, parts, flags)
            if stored is not None:
                futures[stored] = None
            if waiting is not None:
                await waiting
        failure: JMSError | None = None
        for stored in futures:
            try:
                await wait_until_stored(stored)
            except JMSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


async def _wait_for_both(waiting: Awaitable[None] | None, stored: "asyncio.Future[None]") -> None:
    if waiting is not None:
        await waiting
    await wait_until_stored(stored)
