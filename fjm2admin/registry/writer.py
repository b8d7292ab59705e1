"""The only thread that uses the store. The event loop hands work to it, and never waits for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .store import Store

_T = TypeVar("_T")


class Writer:
    """Runner of functions of the store, one after another, in the order in which they were given."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def run(self, work: Callable[[Store], _T]) -> _T:
        """Run `work` in the thread and return its result. Raise StoreError if the work failed."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._store)

    async def close(self) -> None:
        """Finish the work that was given, close the store, and end the thread."""
        await self.run(Store.close)
        self._thread.shutdown()
