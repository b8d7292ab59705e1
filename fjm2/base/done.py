"""An awaitable for functions that sometimes have nothing to wait for."""

from collections.abc import Generator
from typing import Any


class Done:
    """An awaitable that completes at once. Python does not warn if it is never awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


DONE = Done()
