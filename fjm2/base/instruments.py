"""`Instrument`, the entry of a list of counters and gauges.

Every counter and gauge of FJM2 is one `Instrument` in one list, which stands beside the code that counts:

- `fjm2/norm/core/stats.py`: the engine of a NORM session
- `fjm2/norm/net/statistics.py`: the asyncio session around that engine
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
    """Description of one counter or gauge: its names, its unit, and a sentence about it."""

    kind: Literal["counter", "gauge"]
    """"counter" for a number that never falls, unless `sentence` says so, or "gauge" for a current value."""
    field: str | None
    """Name of the field in the statistics, or in a gateway's status. None if only traces have the value."""
    unit: str
    """Unit of the value: a plural noun, `s`, `ms`, `bit/s`, `ratio`, or `bool` for 0 and 1."""
    sentence: str
    """Meaning, in a sentence or two. It becomes the docstring of the field, the help of the Prometheus metric, and the
    text of the documentation."""
    metric: str | None = None
    """Full name of the Prometheus metric. None if Prometheus does not get the value."""
    trace: str | None = None
    """Key in the lines of traces, under `c` for a counter and `g` for a gauge. None if traces leave the value out."""
    is_column: bool = False
    """True if the warehouse of traces has a column for the value. Otherwise the value is in the map of further
    values."""
    label: str | None = None
    """Prometheus label that splits the counter. Its field is then a mapping from values of the label to counts."""

    @property
    def name(self) -> str:
        """Name of the field, or the key in traces if there is no field."""
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
    """Return the trace keys of all instruments of `kind` that have columns in the warehouse. Each key comes once, in
    the order of the lists."""
    found = (one.trace for one in instruments if one.kind == kind and one.is_column)
    return tuple(dict.fromkeys(name for name in found if name is not None))
