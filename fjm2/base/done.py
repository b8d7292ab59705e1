"""What is awaited where there is nothing to wait for."""

from collections.abc import Generator
from typing import Any


class Done:
    """An awaitable with nothing to wait for, which nobody need await."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


DONE = Done()
