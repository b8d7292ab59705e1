"""The keeper inside this process that a connection was opened with."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fjm2.base.errors import FJM2Error
from fjm2.base.quantities import counted
from fjm2.messages.errors import JMSError, ResourceAllocationError

from ..settings import ClientSettings
from .cell_client import CellClient

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.bus.config import BusConfig
    from fjm2.keeper.embedded import KeeperUse

SERVE_S: Final = 15.0
"""Longest wait for a cell that serves: a new cell is founded in four seconds, and takeovers take two."""


class OwnKeeper:
    """A connection's part in the keeper of its process. It does nothing for a connection that asked for none."""

    def __init__(self, config: "BusConfig", settings: ClientSettings, report: Callable[[JMSError], None]) -> None:
        self._config, self._settings, self._report = config, settings, report
        self._use: KeeperUse | None = None

    async def open(self) -> None:
        """Start the keeper, or use the one that runs. Raise ConfigError if its directory cannot be used."""
        directory = self._settings.keep
        if directory is not None:
            from fjm2.keeper.embedded import use_keeper  # only now: most programs have no keeper

            self._use = await use_keeper(Path(directory), self._config, self._settings.replicas, self._note_failure)

    async def serve(self, bus: "Bus") -> None:
        """Wait until a cell serves the bus, so that nothing is sent that it does not hear of."""
        use = self._use
        if use is None:
            return
        is_heard = await CellClient.of(bus).known(SERVE_S, lambda: use.failure is not None)
        if use.failure is not None:
            raise _error(use.failure)
        if not is_heard:
            replicas = self._settings.replicas
            reason = (
                use.standing_by or f"replicas={replicas}: a cell begins when {counted(replicas, 'keeper')} are there"
            )
            raise ResourceAllocationError(
                f"no keeper serves fjm2://{self._config.group}:{self._config.port} after {SERVE_S:g} s, but "
                f"keep={self._settings.keep} was given: {reason}",
                "no_keeper",
            )

    async def close(self) -> None:
        """Give up the keeper. The last connection that uses it waits until everything is on disk."""
        use, self._use = self._use, None
        if use is not None:
            await use.end()

    def _note_failure(self, error: FJM2Error) -> None:
        self._report(_error(error))


def _error(failure: FJM2Error) -> JMSError:
    return ResourceAllocationError(f"the keeper of this program has ended: {failure}", "keeper_failed", failure)
