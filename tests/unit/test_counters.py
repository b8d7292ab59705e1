"""Tests that everything that shows counters agrees with the lists of counters.

They cover statistics, Prometheus metrics, traces and documentation. `make counters`, or `python
tests/unit/test_counters.py`, writes the parts of files that follow from the lists: fields of dataclasses, and tables of
the documentation.
"""

import dataclasses
import difflib
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from fjm2bench.traces import schema

from fjm2 import metrics
from fjm2.base.exposition import text
from fjm2.base.instruments import Instrument
from fjm2.bus.statistics import BUS_COUNTERS, BUS_INSTRUMENTS, BusStatistics
from fjm2.keeper.counts import KEEPER_COUNTERS, KEEPER_INSTRUMENTS, KeeperStatistics
from fjm2.norm import SessionStatistics, Stats
from fjm2.norm.core.stats import COUNTERS
from fjm2.norm.net.statistics import SESSION_INSTRUMENTS
from fjm2.traces.process import PROCESS_INSTRUMENTS
from fjm2d import instruments as gateway
from fjm2d.tunnel import PeerStats

ROOT = Path(__file__).parents[2]
LINE_CHARACTERS: Final = 120
"""Longest line of the source, as in pyproject.toml."""

LISTS: Final[Mapping[str, tuple[Instrument, ...]]] = {
    "session": SESSION_INSTRUMENTS,
    "bus": BUS_INSTRUMENTS,
    "keeper": KEEPER_INSTRUMENTS,
    "process": PROCESS_INSTRUMENTS,
    "link": gateway.LINK_INSTRUMENTS,
    "lan": gateway.LAN_INSTRUMENTS,
    "gateway": gateway.GATEWAY_INSTRUMENTS,
}
EVERY: Final = [(name, one) for name, instruments in LISTS.items() for one in instruments]
every_instrument = pytest.mark.parametrize(("name", "one"), EVERY, ids=[f"{name}-{one.name}" for name, one in EVERY])


# Blocks in files.


class Block(NamedTuple):
    """The part of a file between two marker lines, and the lines that belong there."""

    path: str
    begin: str
    end: str
    lines: Callable[[], Iterable[str]]

    def written(self, content: str) -> str:
        """Return the file's content, with the lines of the block replaced by the present ones."""
        pattern = re.compile(f"({re.escape(self.begin)}\n).*?( *{re.escape(self.end)}\n)", re.DOTALL)
        lines = "".join(f"{line}\n" for line in self.lines())
        replaced, count = pattern.subn(lambda found: found[1] + lines + found[2], content)
        assert count == 1, f"{self.path}: expected {self.begin!r} and {self.end!r} once, found them {count} times"
        return replaced


def fields_of(path: str, kind: str, instruments: Iterable[Instrument], default: str = "") -> Block:
    """Return the block with the fields of a dataclass."""
    begin = f"# Fields of {kind}: begin (make counters)"
    end = f"# Fields of {kind}: end"
    return Block(path, begin, end, lambda: _field_lines(instruments, default))


def _field_lines(instruments: Iterable[Instrument], default: str) -> Iterator[str]:
    for one in instruments:
        if one.field:
            yield f"    {one.field}: {type_of(one)}{default}"
            quoted = f'"""{one.sentence}"""'
            yield from textwrap.wrap(quoted, LINE_CHARACTERS, initial_indent="    ", subsequent_indent="    ")


def type_of(one: Instrument) -> str:
    """Return the type annotation of an instrument's field."""
    if one.label:
        return "Mapping[str, int]"
    return {"s": "float", "bool": "bool"}.get(one.unit, "int")


def table_of(name: str, column: str) -> Block:
    """Return the block with the table of one list in docs/observability.md."""
    return Block(
        "docs/observability.md",
        f"<!-- counters of {name}: begin (make counters) -->",
        f"<!-- counters of {name}: end -->",
        lambda: _table_lines(LISTS[name], column),
    )


def _table_lines(instruments: Iterable[Instrument], column: str) -> Iterator[str]:
    yield f"| {column} | Prometheus | unit | meaning |"
    yield "| --- | --- | --- | --- |"
    for one in instruments:
        if one.field:
            metric = f"`{one.metric}`{f' by `{one.label}`' if one.label else ''}" if one.metric else ""
            yield f"| `{one.field}` | {metric} | {one.unit} | {one.sentence} |"


SOURCES: Final = {
    "`session`, and each lane of a bus": "session",
    "`lane0`, besides": "bus",
    "`link:PEER`": "link",
    "`lan:GROUP`": "lan",
    "`gateway`": "gateway",
    "the first series of a process, besides": "process",
}
"""Sources of trace lines as docs/traces.md names them, with the name of the list of their instruments."""


def keys_table() -> Block:
    """Return the block with the table of keys in docs/traces.md."""
    begin, end = "<!-- keys of traces: begin (make counters) -->", "<!-- keys of traces: end -->"
    return Block("docs/traces.md", begin, end, _key_lines)


def _key_lines() -> Iterator[str]:
    yield "| source | in | key | unit | column | meaning |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for source, name in SOURCES.items():
        for one in LISTS[name]:
            if one.trace:
                place = "`c`" if one.kind == "counter" else "`g`"
                unit = "s" if one.trace.endswith("_s") else one.unit
                is_column = "yes" if one.is_column else ""
                yield f"| {source} | {place} | `{one.trace}` | {unit} | {is_column} | {one.sentence} |"


BLOCKS: Final = (
    fields_of("fjm2/norm/core/stats.py", "Stats", COUNTERS, " = 0"),
    fields_of("fjm2/norm/net/statistics.py", "SessionStatistics", SESSION_INSTRUMENTS),
    fields_of("fjm2/bus/statistics.py", "BusStats", BUS_COUNTERS, " = 0"),
    fields_of("fjm2/bus/statistics.py", "BusStatistics", BUS_INSTRUMENTS),
    fields_of("fjm2/keeper/counts.py", "KeeperCounts", KEEPER_COUNTERS, " = 0"),
    fields_of("fjm2/keeper/counts.py", "KeeperStatistics", KEEPER_INSTRUMENTS),
    fields_of("fjm2d/tunnel/peer_stats.py", "PeerStats", gateway.LINK_COUNTERS, " = 0"),
    table_of("session", "field of `SessionStatistics`"),
    table_of("bus", "field of `BusStatistics`"),
    table_of("keeper", "field of `KeeperStatistics`"),
    table_of("link", "key of a peer"),
    table_of("lan", "key of a group"),
    table_of("gateway", "key"),
    keys_table(),
)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.path} {block.begin}")
def test_files_show_the_present_lists(block: Block) -> None:
    content = (ROOT / block.path).read_text()
    texts = content.splitlines(), block.written(content).splitlines()
    difference = "\n".join(difflib.unified_diff(*texts, block.path, "as the list has it", lineterm="", n=0))
    if difference:
        pytest.fail(
            f"{block.path} does not show the present counters: run `make counters`\n{difference}", pytrace=False
        )


# Every instrument appears everywhere.


@every_instrument
def test_every_instrument_is_described(name: str, one: Instrument) -> None:
    assert one.field or one.trace, f"an entry of {name} has neither a field nor a key in traces: {one}"
    assert one.unit, f"{one.name}: expected a unit"
    assert re.fullmatch(r"[A-Z][^\n]*\.", one.sentence), (
        f"{one.name}: expected one line from a capital letter to a full stop: {one.sentence!r}"
    )
    if one.metric:
        assert re.fullmatch(r"fjm2d?_[a-z_]+", one.metric), f"{one.name}: expected fjm2_... in lower case: {one.metric}"
        assert one.metric.endswith("_total") == (one.kind == "counter"), (
            f"{one.name}: {one.metric}: names of counters end in _total, those of gauges do not"
        )


@pytest.mark.parametrize("name", LISTS)
def test_no_name_comes_twice_in_a_list(name: str) -> None:
    for names in zip(*((one.field, one.metric, one.trace) for one in LISTS[name]), strict=True):
        assert not twice(names)


def twice(names: Iterable[str | None]) -> set[str]:
    """Return the names that occur more than once."""
    return {name for name, count in Counter(names).items() if name and count > 1}


def names_of(kind: type) -> list[str]:
    return [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]


def test_statistics_have_every_field_of_the_lists_and_no_other() -> None:
    assert names_of(SessionStatistics) == [one.field for one in SESSION_INSTRUMENTS if one.field]
    assert names_of(BusStatistics) == [*(one.field for one in BUS_INSTRUMENTS if one.field), "lanes"]
    assert names_of(KeeperStatistics) == [one.field for one in KEEPER_INSTRUMENTS]
    assert names_of(Stats) == [*(one.field for one in COUNTERS), "grtt_s", "drops"]
    assert names_of(PeerStats) == [*(one.field for one in gateway.LINK_COUNTERS), "drops"]


def test_every_field_of_the_statistics_has_a_metric() -> None:
    """Two fields of a bus have no metric of their own: `messages_sent`, which is a sum over lanes, and `lanes`."""
    assert {one.field for one in SESSION_INSTRUMENTS if one.metric} == set(names_of(SessionStatistics))
    assert {one.field for one in BUS_INSTRUMENTS if one.metric} == {*names_of(BusStatistics)} - {
        "messages_sent",
        "lanes",
    }


def test_no_metric_stands_for_two_things() -> None:
    assert not twice(one.metric for _, one in EVERY)


def statistics(kind: type, instruments: Iterable[Instrument], **more: object) -> object:
    """Return statistics of a class, with a different value in each field."""
    values = {
        one.field: {"reason": number} if one.label else number for number, one in enumerate(instruments) if one.field
    }
    return kind(**values, **more)


def test_prometheus_has_every_metric_of_sessions_buses_and_keepers_and_no_other() -> None:
    sessions = [metrics.Source({"source": "session"}, statistics(SessionStatistics, SESSION_INSTRUMENTS))]
    buses = [metrics.Source({"source": "bus"}, statistics(BusStatistics, BUS_INSTRUMENTS, lanes={}))]
    keepers = [metrics.Source({"source": "keeper"}, statistics(KeeperStatistics, KEEPER_INSTRUMENTS))]
    more = [(KEEPER_INSTRUMENTS, keepers)]
    lines = text(metrics.families(sessions, buses, more)).splitlines()
    found = {line for line in lines if not line.startswith("fjm2_info")} - {
        "# HELP fjm2_info Always 1.",
        "# TYPE fjm2_info gauge",
    }
    expected = set()
    for source, instruments in (
        ("session", SESSION_INSTRUMENTS),
        ("bus", BUS_INSTRUMENTS),
        ("keeper", KEEPER_INSTRUMENTS),
    ):
        for number, one in enumerate(instruments):
            if one.metric:
                labels = f'source="{source}"' + (f',{one.label}="reason"' if one.label else "")
                expected |= {
                    f"# HELP {one.metric} {one.sentence}",
                    f"# TYPE {one.metric} {one.kind}",
                    f"{one.metric}{{{labels}}} {number}",
                }
    assert found == expected


def test_traces_record_every_counter_of_the_engine() -> None:
    assert list(Stats().counters()) == [one.trace for one in COUNTERS]


def test_the_schema_has_a_column_for_every_key_that_wants_one_and_no_other() -> None:
    wanted = {
        kind: {one.trace for _, one in EVERY if one.is_column and one.kind == kind} for kind in ("counter", "gauge")
    }
    assert {*schema.COUNTERS, schema.CPU} == wanted["counter"]
    assert set(schema.GAUGES) == wanted["gauge"]
    assert {*schema.COUNTERS, schema.CPU, *schema.GAUGES} <= set(schema.SAMPLE_COLUMNS)


@every_instrument
def test_the_documentation_has_every_instrument(name: str, one: Instrument) -> None:
    if one.field:
        page = (ROOT / "docs/observability.md").read_text()
        start, end = f"<!-- counters of {name}: begin", f"<!-- counters of {name}: end"
        assert f"| `{one.field}` |" in page[page.index(start) : page.index(end)]
    if one.trace:
        assert re.search(rf"^\| .* \| `{one.trace}` \| .* \|$", (ROOT / "docs/traces.md").read_text(), re.MULTILINE)


if __name__ == "__main__":
    for block in BLOCKS:
        path = ROOT / block.path
        path.write_text(block.written(path.read_text()))
