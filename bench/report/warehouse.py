"""Read access to a warehouse's Parquet files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..traces.warehouse import WarehouseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run: a row of `results/` with the role `run`."""

    run: str
    t: float
    system: str
    layer: str
    scenario: str | None
    size: int | None
    fanout: int | None
    loss: float
    rate_bps: float | None
    r: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def fault(self) -> str:
        return self.labels.get("fault", "")


class Warehouse:
    """A warehouse, as `fjm2-bench traces` writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not any((folder / name).is_dir() for name in ("rows", "results", "aggregates")):
            raise WarehouseError(
                f"{folder}: there is no data: expected rows/, results/ and aggregates/, as `fjm2-bench traces "
                "ingest` and `fjm2-bench traces aggregate` write them"
            )

    def results(self) -> list[Result]:
        """Return all runs of benchmarks, the oldest first."""
        rows = [_result(row) for row in self.rows("results") if row["role"] == "run"]
        return sorted(rows, key=lambda result: (result.t, result.run))

    def rows(self, name: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return all rows of a folder of Parquet files; none if there is no such folder."""
        table = self.table(name, columns)
        return [] if table is None else [_plain(row) for row in table.to_pylist()]

    def has(self, name: str) -> bool:
        """Return True if there is a folder of this name with rows."""
        return any((self.folder / name).rglob("*.parquet"))

    def table(
        self, name: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table | None:
        """Return the rows, or those that meet a condition, as an Arrow table, for folders that may have many. None if
        there is no such folder.
        """
        folder = self.folder / name
        if not self.has(name):
            return None
        try:
            return ds.dataset(folder, format="parquet", partitioning="hive").to_table(
                columns and list(columns), filter=where
            )
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(f"{folder}: cannot be read: {error}") from error


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Convert the maps of a row, which Arrow returns as lists of pairs."""
    return {name: dict(value) if name in _MAPS and value is not None else value for name, value in row.items()}


_MAPS = ("r", "labels", "c", "g", "drops")


def _result(row: Mapping[str, Any]) -> Result:
    t = row["t"]
    return Result(
        run=row["run"],
        t=t.timestamp() if isinstance(t, datetime) else float(t),
        system=row["system"],
        layer=row["layer"],
        scenario=row["scenario"],
        size=row["size"],
        fanout=row["fanout"],
        loss=row["loss"] or 0.0,
        rate_bps=row["rate_bps"],
        r=row["r"] or {},
        labels=row["labels"] or {},
    )
