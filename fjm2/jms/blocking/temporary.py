"""Temporary destinations that are deleted without `await`."""

from typing import Self

from fjm2.messages.destination import TemporaryQueue as AioTemporaryQueue
from fjm2.messages.destination import TemporaryTopic as AioTemporaryTopic

from .loop_thread import call


class TemporaryTopic(AioTemporaryTopic):
    """A topic that only its own connection can consume from. Leaving `with topic` deletes it."""

    __slots__ = ()

    def delete(self) -> None:  # type: ignore[override]
        """Delete the topic.

        Raise IllegalStateError if it has consumers, InvalidDestinationError if another connection owns it.
        """
        call(super().delete())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


class TemporaryQueue(AioTemporaryQueue):
    """A queue that only its own connection can consume from. Leaving `with queue` deletes it."""

    __slots__ = ()

    def delete(self) -> None:  # type: ignore[override]
        """Delete the queue.

        Raise IllegalStateError if it has consumers, InvalidDestinationError if another connection owns it.
        """
        call(super().delete())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()
