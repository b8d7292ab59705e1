"""What has been measured: result lines in the folder that the run writes to. They say, too, which cells are done."""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fjm2.record import Labels, TraceWriter

from ..comparison.trial import Line
from .matrix import Cell, ends_of

_LOCK = "fjm2-bench.lock"
_NODE = "bench"
_COUNTED = (
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
"""Figures of a process's line that go into its result."""


class BookError(Exception):
    """The folder cannot be written to; says why."""


class Book:
    """One folder of results, which belongs to one process at a time."""

    def __init__(self, folder: Path, plan: str) -> None:
        self.folder = folder
        self._plan = plan
        self._stamp = time.strftime("%Y%m%dT%H%M%S")

    def run_of(self, cell: Cell) -> str:
        """The id of a cell's run, if it is measured now."""
        return f"{self._stamp}.{cell.name}"

    def done(self) -> set[str]:
        """Keys of cells that have a result of their own, whole or with a fault."""
        keys: set[str] = set()
        for path in self.folder.glob(f"run=*/node={_NODE}.jsonl"):
            for line in _lines(path):
                labels = line.get("labels")
                if line.get("role") == "run" and isinstance(labels, dict) and "cell" in labels:
                    keys.add(labels["cell"])
        return keys

    def surroundings(self, cell: Cell, role: str, node: str) -> dict[str, str]:
        """What makes a process of ours write samples that belong to this run."""
        is_gateway = role == "gateway"
        labels = {
            "run": self.run_of(cell),
            "node": node,
            "system": "fjm2d" if is_gateway else ends_of(cell),
            "layer": "gateway" if is_gateway else cell.layer,
            "role": role,
            "scenario": cell.scenario,
            "size": cell.size,
            "fanout": cell.fanout,
            "loss": cell.loss,
            "rate_bps": cell.rate_bps,
        }
        return {"FJM2_TRACE_DIR": str(self.folder.absolute()), "FJM2_TRACE_LABELS": json.dumps(labels)}

    def enter(
        self,
        cell: Cell,
        figures: Mapping[str, float],
        labels: Mapping[str, str],
        lines: tuple[Line, ...] = (),
    ) -> None:
        """A run is over: a result for each process, and last the one of all, which makes the cell done."""
        common = Labels(
            run=self.run_of(cell),
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
        told = {"plan": self._plan, "experiment": cell.experiment.name, "repeat": str(cell.turn)} | dict(labels)
        with TraceWriter(self.folder, common) as writer:
            for line in lines:
                own = figures_of(line.values)
                writer.write_result(own, told, node=line.node, role=line.role, system=ends_of(cell))
            is_written = writer.write_result(figures, told | {"cell": cell.key})
        if not is_written:
            raise BookError(f"{self.folder}: a result cannot be written there; see the warning above")

    def enter_missing(self, experiments: str, system: str, layer: str, reason: str, labels: Mapping[str, str]) -> None:
        """A system that is not there is named as missing."""
        run = f"{self._stamp}.missing.{system}"
        with TraceWriter(self.folder, Labels(run=run, node=_NODE, system=system, layer=layer, role="run")) as writer:
            told = {"plan": self._plan, "experiment": experiments, "missing": reason, "fault": f"missing: {reason}"}
            writer.write_result({}, told | dict(labels))


def figures_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a process's line."""
    return {name: values[name] for name in _COUNTED if isinstance(values.get(name), int | float)}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Those that are whole."""
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # somebody was killed while writing it
        if isinstance(line, dict):
            yield line


@contextmanager
def ownership(folder: Path) -> Iterator[None]:
    """The folder is ours until the context is left. BookError if another run has it.

    The lock is the kernel's, so it ends with the process whatever happens.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("a")
    except OSError as error:
        raise BookError(f"{folder}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BookError(f"{folder}: another run writes there; wait for it, or choose another folder") from None
        yield
