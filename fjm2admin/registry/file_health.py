"""Health of the file, as another process would find it, whatever this one still holds in memory."""

from time import monotonic
from typing import Final

from fjm2.base.logs import Log

from ..errors import StoreError
from .store import Store
from .writer import Writer

log = Log("fjm2admin.nodes")

CHECK_S: Final = 1.0
"""Time between two checks. One takes less than a millisecond."""
_SILENCE_S: Final = 15.0
"""Time without a result after which the file counts as failing: a disk hangs. No write takes so long."""


class FileHealth:
    """Result of the latest write and the latest check of the file."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._write_fault: str | None = None
        self._check_fault: str | None = None
        self._checked_at = monotonic()

    @property
    def fault(self) -> str | None:
        """Reason why the service cannot use its file; None if it can."""
        if monotonic() - self._checked_at > _SILENCE_S:
            return "the file does not answer"
        return self._check_fault or self._write_fault

    async def check(self) -> None:
        """Read the file anew."""
        before = self.fault
        self._check_fault = await self._writer.run(_fault_of)
        self._checked_at = monotonic()
        self._log_change(before)

    def note_write(self, fault: str | None) -> None:
        """Note the outcome of a write: None if it succeeded."""
        before = self.fault
        self._write_fault = fault
        self._log_change(before)

    def _log_change(self, before: str | None) -> None:
        if before == self.fault:
            return
        if self.fault:
            log.error("store_failed", error=self.fault)
        else:
            log.info("store_works_again")


def _fault_of(store: Store) -> str | None:
    try:
        store.check()
    except StoreError as error:
        return str(error)
    return None
