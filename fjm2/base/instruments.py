"""Entries of the lists of counters.

Every counter and gauge of FJM2 is one `Instrument` in one list, which stands beside the code that counts:

- `fjm2/norm/core/stats.py`: the engine of a NORM session
- `fjm2/norm/net/statistics.py`: the session around it
- `fjm2/bus/statistics.py`: a bus
- `fjm2/traces/process.py`: the process
- `fjm2d/instruments.py`: a gateway's links and LANs

The rest follows from the lists: the families for Prometheus and the columns of the Spark pipeline at run time; the
fields of the dataclasses and the tables of the documentation by `make counters`. docs/dev/recipes.md says how to add a
counter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One counter or gauge: its names, its unit, and a sentence about it."""

    kind: Literal["counter", "gauge"]
    """A counter never falls, except where its sentence says so. A gauge is a current value."""
    field: str | None
    """Field of the statistics, or of a gateway's status; None if only traces have it."""
    unit: str
    """Plural noun, `s`, `ms`, `bit/s`, `ratio`, or `bool` for 0 and 1."""
    sentence: str
    """Meaning, in a sentence or two: docstring of the field, help for Prometheus, text of the documentation."""
    metric: str | None = None
    """Full name for Prometheus; None if it has no family."""
    trace: str | None = None
    """Key in the lines of traces, in `c` for a counter and `g` for a gauge; None if traces leave it out."""
    is_column: bool = False
    """True if the warehouse of traces has a column for it. Otherwise it is in the map of further values."""
    label: str | None = None
    """Prometheus label by which it is split; its field is then a mapping from that label to a count."""

    @property
    def name(self) -> str:
        """Name of the field, or the key in traces if it has no field."""
        return self.field or self.trace or ""


def counter(
    field: str | None,
    unit: str,
    sentence: str,
    *,
    metric: str | None = None,
    trace: str | None = None,
    is_column: bool = False,
    label: str | None = None,
) -> Instrument:
    """Return the description of a counter."""
    return Instrument(
        kind="counter",
        field=field,
        unit=unit,
        sentence=sentence,
        metric=metric,
        trace=trace,
        is_column=is_column,
        label=label,
    )


def gauge(
    field: str | None,
    unit: str,
    sentence: str,
    *,
    metric: str | None = None,
    trace: str | None = None,
    is_column: bool = False,
) -> Instrument:
    """Return the description of a gauge."""
    return Instrument(
        kind="gauge", field=field, unit=unit, sentence=sentence, metric=metric, trace=trace, is_column=is_column
    )


def columns(instruments: Iterable[Instrument], kind: Literal["counter", "gauge"]) -> tuple[str, ...]:
    """Return the trace keys of one kind that have columns in the warehouse, each once, in the order of the lists."""
    found = (one.trace for one in instruments if one.kind == kind and one.is_column)
    return tuple(dict.fromkeys(name for name in found if name is not None))
