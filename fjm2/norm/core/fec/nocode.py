"""The code without parity: a block is complete if nothing of it was lost."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import ConfigError

from .code import Symbols, check_received, check_source


@dataclass(frozen=True, slots=True)
class NoCode:
    """A `Code` without parity symbols. Raises ConfigError for a block length below 1."""

    source_count: int

    def __post_init__(self) -> None:
        if self.source_count < 1:
            raise ConfigError(f"source_count={self.source_count}: expected 1 or more")

    @property
    def parity_count(self) -> int:
        """Number of parity symbols: always 0."""
        return 0

    def encode(self, source: Symbols, rows: range | None = None) -> Symbols:
        """Return an empty array, as there are no parity symbols. Raise ValueError if `rows` asks for any."""
        check_source(self, source)
        if rows:
            raise ValueError(f"rows={rows}: expected none, this code has no parity")
        return np.empty((source.shape[0], 0, source.shape[2]), np.uint8)

    def decode(self, symbols: Symbols, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return True for each block that is complete. Raise ValueError if a shape does not fit."""
        check_received(self, symbols, present)
        whole: NDArray[np.bool_] = np.logical_and.reduce(present, axis=1)
        return whole
