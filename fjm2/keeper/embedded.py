"""A keeper inside a program: a thread with an event loop of its own, so that a busy program does not hold it up.

All connections of the process that name a directory share its keeper. The first one starts it, and the last one stops
it. While another process has the directory open, it stands by.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from fjm2.base.errors import ConfigError, FJM2Error
from fjm2.base.logs import Log
from fjm2.bus.config import BusConfig
from fjm2.store.config import StoreConfig
from fjm2.store.errors import StoreInUseError
from fjm2.store.opening import DamagedStoreError

from .running_keeper import running_keeper
from .store_directory import LOOK_S, OpenStore, open_store, present_config

log = Log("fjm2.keeper")

_CHECKPOINT_BATCHES: Final = 3_000
"""Batches after which a checkpoint is due. Reading one takes 30 us, and those who stand by take over in 300 ms."""
_CHECKPOINT_BYTES: Final = 64 << 20
"""Bytes of batches after which a checkpoint is due: reading them takes 50 ms."""


class KeeperUse:
    """One connection's use of an embedded keeper."""

    def __init__(self, keeper: "EmbeddedKeeper", on_failed: Callable[[FJM2Error], None]) -> None:
        """Use `use_keeper` instead."""
        self.keeper: Final = keeper
        self._loop = asyncio.get_running_loop()
        self._on_failed = on_failed

    @property
    def failure(self) -> FJM2Error | None:
        """Error that ended the keeper, or None."""
        return self.keeper.failure

    @property
    def standing_by(self) -> str:
        """Text that names the process that has the directory open; empty if this one has."""
        return self.keeper.standing_by

    def report(self, error: FJM2Error) -> None:
        """Tell the connection of the keeper's end, from the keeper's thread."""
        with contextlib.suppress(RuntimeError):  # its event loop ended without closing the connection
            self._loop.call_soon_threadsafe(self._on_failed, error)

    async def end(self) -> None:
        """Give up the use. The last one waits until everything is on disk, and the directory is free."""
        if _give_up(self.keeper, self):
            await asyncio.shield(asyncio.wrap_future(self.keeper.ended))


class EmbeddedKeeper:
    """A keeper in a thread of its own."""

    def __init__(self, directory: Path, place: Path, config: BusConfig, replicas: int) -> None:
        """Start the thread. `place` is the directory without symbolic links, by which it is known."""
        self.directory, self.place, self.config, self.replicas = directory, place, config, replicas
        self.users: list[KeeperUse] = []
        """Connections that use it. The lock of this module guards it."""
        self.begun: Final[Future[None]] = Future()
        """Done as soon as the keeper runs, or stands by."""
        self.ended: Final[Future[None]] = Future()
        """Done when everything is on disk, and the directory is free."""
        self.failure: FJM2Error | None = None
        self.standing_by = ""
        self._is_stopping = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        threading.Thread(target=self._run, name="fjm2-keeper", daemon=True).start()

    def stop(self) -> None:
        """Have the keeper end. Any thread may call this, once."""
        self._is_stopping.set()
        with contextlib.suppress(RuntimeError):  # it has failed meanwhile
            self._loop.call_soon_threadsafe(self._stopped.set)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                store = self._open()
                if store is not None:
                    runner.run(self._keep(store))
            except FJM2Error as error:
                self._fail(error)
            except Exception as error:
                failure = FJM2Error(f"the keeper in {self.directory} ended: {error!r}")
                failure.__cause__ = error
                self._fail(failure)
        self.ended.set_result(None)

    def _open(self) -> OpenStore | None:
        """Open the store as soon as no other process has it open. Return None if the keeper is to end before."""
        while not self._is_stopping.is_set():
            try:
                return open_store(self.directory, _config_for(self.directory))
            except StoreInUseError as error:
                self.standing_by = str(error)
                self._begin()
                self._is_stopping.wait(LOOK_S)
            except ConfigError as error:
                raise _placed(error, self.directory) from error
        return None

    async def _keep(self, store: OpenStore) -> None:
        self.standing_by = ""
        async with running_keeper(self.config.to_uri(), store, members_wanted=self.replicas) as keeper:
            self._begin()
            failing = asyncio.ensure_future(keeper.failed())
            stopping = asyncio.ensure_future(self._stopped.wait())
            await asyncio.wait((failing, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if failing.done():
                await failing
            failing.cancel()

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def _fail(self, error: FJM2Error) -> None:
        self.failure = error
        users = _forget(self)
        if self.begun.done():
            log.tell(logging.ERROR, "keeper_failed", str(error))
            for each in users:
                each.report(error)
        else:
            self.begun.set_exception(error)


def _config_for(directory: Path) -> StoreConfig:
    """Return settings with which a store opens soon. Segments that are there are used as long as they are: others would
    have to be written first."""
    return StoreConfig(
        segment_bytes=present_config(directory).segment_bytes,
        checkpoint_batches=_CHECKPOINT_BATCHES,
        checkpoint_bytes=_CHECKPOINT_BYTES,
    )


def _placed(error: ConfigError, directory: Path) -> ConfigError:
    """Return an error of a store that names the directory, and the command that helps."""
    text, place = str(error), str(directory)
    text = text if text.startswith(place) else f"{place}: {text}"
    advice = f": fjm2 keep check {place} --accept-loss" if isinstance(error, DamagedStoreError) else ""
    return ConfigError(f"keep={text}{advice}")


_lock = threading.Lock()
_keepers: Final[dict[Path, EmbeddedKeeper]] = {}
"""Keepers that run or stand by, by directory. One that ends is no longer here: its successor stands by for it."""


async def use_keeper(
    directory: Path, config: BusConfig, replicas: int, on_failed: Callable[[FJM2Error], None]
) -> KeeperUse:
    """Start the keeper of a directory, or use the one that runs in this process. Return when it runs, or stands by.

    `on_failed` gets the error that ends it later. Raise ConfigError if the directory cannot be used, or this process
    keeps there with other settings.
    """
    use = _begin_use(directory, config, replicas, on_failed)
    try:
        await asyncio.shield(asyncio.wrap_future(use.keeper.begun))
    except BaseException:
        await use.end()
        raise
    return use


def _begin_use(directory: Path, config: BusConfig, replicas: int, on_failed: Callable[[FJM2Error], None]) -> KeeperUse:
    place = directory.resolve()
    with _lock:
        keeper = _keepers.get(place)
        if keeper is None:
            keeper = _keepers[place] = EmbeddedKeeper(directory, place, config, replicas)
        else:
            _check_same(keeper, config, replicas)
        use = KeeperUse(keeper, on_failed)
        keeper.users.append(use)
    return use


def _check_same(keeper: EmbeddedKeeper, config: BusConfig, replicas: int) -> None:
    here, asked = keeper.config, config
    if (here.group, here.port, here.interface) != (asked.group, asked.port, asked.interface):
        raise ConfigError(
            f"keep={keeper.directory}: this program keeps there for fjm2://{here.group}:{here.port}, and "
            f"fjm2://{asked.group}:{asked.port} was asked for: expected a directory for each bus"
        )
    if keeper.replicas != replicas:
        raise ConfigError(
            f"replicas={replicas}: this program keeps in {keeper.directory} with replicas={keeper.replicas}: expected "
            "the same number"
        )


def _give_up(keeper: EmbeddedKeeper, use: KeeperUse) -> bool:
    """Remove a user. Return True if it was the last one of a keeper that has to end now."""
    with _lock:
        if use not in keeper.users:
            return False
        keeper.users.remove(use)
        is_last = not keeper.users and _keepers.get(keeper.place) is keeper
        if is_last:
            del _keepers[keeper.place]
    if is_last:
        keeper.stop()
    return is_last


def _forget(keeper: EmbeddedKeeper) -> list[KeeperUse]:
    """Forget a keeper that has failed, so that the next connection starts another one. Return its users."""
    with _lock:
        if _keepers.get(keeper.place) is keeper:
            del _keepers[keeper.place]
        return list(keeper.users)


def _after_fork() -> None:
    """Leave all keepers to the parent: their threads do not run here."""
    global _lock
    _lock = threading.Lock()
    _keepers.clear()


os.register_at_fork(after_in_child=_after_fork)
