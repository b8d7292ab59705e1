"""The folder of a run's results. Its lines also tell which cells have been measured."""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fjm2.record import Labels, TraceWriter

from ..comparison.trial import ProcessResult
from .matrix import Cell, end_system

_LOCK = "fjm2-bench.lock"
_NODE = "bench"
_FIGURES = (
    "messages",
    "bytes",
    "seconds",
    "msgs_per_s",
    "gbit_per_s",
    "cpu_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "count",
    "lost",
    "duplicated",
    "out_of_order",
    "corrupt",
    "loss_reports",
    "nacks",
    "repairs",
    "window_waits",
)
"""Numbers of a process's result line that are recorded."""


class ResultFolderError(Exception):
    """The folder cannot be used. The message says why."""


class ResultFolder:
    """Result lines of one run of a plan. One process at a time writes to a folder: see `ownership`."""

    def __init__(self, folder: Path, plan: str) -> None:
        self.folder = folder
        self._plan = plan
        self._stamp = time.strftime("%Y%m%dT%H%M%S")

    def run_id(self, cell: Cell) -> str:
        """Return the id of a cell's run if it is measured now."""
        return f"{self._stamp}.{cell.name}"

    def done(self) -> set[str]:
        """Return the keys of cells that have a result, with or without a fault."""
        keys: set[str] = set()
        for path in self.folder.glob(f"run=*/node={_NODE}.jsonl"):
            for line in _lines(path):
                labels = line.get("labels")
                if line.get("role") == "run" and isinstance(labels, dict) and "cell" in labels:
                    keys.add(labels["cell"])
        return keys

    def environment_of(self, cell: Cell, role: str, node: str) -> dict[str, str]:
        """Return environment variables that make an FJM2 process record its samples as part of this run."""
        is_gateway = role == "gateway"
        labels = {
            "run": self.run_id(cell),
            "node": node,
            "system": "fjm2d" if is_gateway else end_system(cell),
            "layer": "gateway" if is_gateway else cell.layer,
            "role": role,
            "scenario": cell.scenario,
            "size": cell.size,
            "fanout": cell.fanout,
            "loss": cell.loss,
            "rate_bps": cell.rate_bps,
        }
        return {"FJM2_TRACE_DIR": str(self.folder.absolute()), "FJM2_TRACE_LABELS": json.dumps(labels)}

    def write(
        self,
        cell: Cell,
        figures: Mapping[str, float],
        labels: Mapping[str, str],
        processes: tuple[ProcessResult, ...] = (),
    ) -> None:
        """Record a run: a result for each process, then that of the whole run, which marks the cell as done."""
        common = Labels(
            run=self.run_id(cell),
            node=_NODE,
            system=cell.system,
            layer=cell.layer,
            role="run",
            scenario=cell.scenario,
            size=cell.size,
            fanout=None if cell.symbol else cell.fanout,
            loss=None if cell.symbol else cell.loss,
            rate_bps=cell.rate_bps,
        )
        details = {"plan": self._plan, "experiment": cell.experiment.name, "repeat": str(cell.turn)} | dict(labels)
        with TraceWriter(self.folder, common) as writer:
            for process in processes:
                own = figures_of(process.values)
                writer.write_result(own, details, node=process.node, role=process.role, system=end_system(cell))
            is_written = writer.write_result(figures, details | {"cell": cell.key})
        if not is_written:
            raise ResultFolderError(f"{self.folder}: a result cannot be written there; see the warning above")

    def write_missing(self, experiments: str, system: str, layer: str, reason: str, labels: Mapping[str, str]) -> None:
        """Record that a system is not installed."""
        run = f"{self._stamp}.missing.{system}"
        with TraceWriter(self.folder, Labels(run=run, node=_NODE, system=system, layer=layer, role="run")) as writer:
            details = {"plan": self._plan, "experiment": experiments, "missing": reason, "fault": f"missing: {reason}"}
            writer.write_result({}, details | dict(labels))


def figures_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a process's result line that are recorded."""
    return {name: values[name] for name in _FIGURES if isinstance(values.get(name), int | float)}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file, decoded. Incomplete lines are left out."""
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # its writer was killed
        if isinstance(line, dict):
            yield line


@contextmanager
def ownership(folder: Path) -> Iterator[None]:
    """Lock the folder until the context is left. Raise ResultFolderError if another run has locked it.

    The kernel holds the lock, so that it ends with the process.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("a")
    except OSError as error:
        raise ResultFolderError(f"{folder}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultFolderError(
                f"{folder}: another run writes there; wait for it, or choose another folder"
            ) from None
        yield
