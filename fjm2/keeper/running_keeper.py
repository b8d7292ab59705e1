"""A keeper from the opening of its bus to the end of its store."""

import contextlib
from collections.abc import AsyncIterator, Callable

from fjm2.bus.bus import Bus
from fjm2.cell.outgoing import State

from .keeper import Keeper, keeper_config
from .store_directory import OpenStore


@contextlib.asynccontextmanager
async def running_keeper(
    uri: str,
    store: OpenStore,
    *,
    members_wanted: int,
    on_state: Callable[[State, int], None] = lambda *_: None,
    replaces: bytes = b"",
) -> AsyncIterator[Keeper]:
    """Run a keeper on a bus. At the end everything that it took is on disk, and the store is closed."""
    try:
        bus = await Bus.open(keeper_config(uri))
        try:
            keeper = Keeper(bus, store, members_wanted=members_wanted, on_state=on_state, replaces=replaces)
            try:
                yield keeper
            finally:
                await keeper.close()
        finally:
            await bus.close()
    finally:
        store.disk.shut()
