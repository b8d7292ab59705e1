"""The store's one thread: the loop hands it work and never waits for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .store import Store

_T = TypeVar("_T")


class Writer:
    """Runs functions of the store, one after another."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def run(self, work: Callable[[Store], _T]) -> _T:
        """What `work` returns; StoreError if it failed."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._store)

    async def close(self) -> None:
        await self.run(Store.close)
        self._thread.shutdown()
