"""Objects that a `with` block closes."""

from types import TracebackType
from typing import Self


class Closable:
    """Base of objects that are closed at the end of their `with` block."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_after(kind)

    def _close_after(self, kind: type[BaseException] | None) -> None:  # noqa: ARG002 - connections use it
        self.close()
