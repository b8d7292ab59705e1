"""The report of a bus as tables, in as many lines and columns as there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from fjm2.base.logs import one_line
from fjm2.watch import BusReport, ConnectionReport, GatewayReport, ReceiverReport, SenderReport, TopicReport

from .bus_link import people
from .live_view import quantity, rate, span

_MEDIUM: Final = 60
_WIDE: Final = 120
_LONG_S: Final = 1.0
"""To wait for a receiver."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    show: Callable[[Any], str]
    share: int = 0
    """Of the room that is left; 0 is a number, which takes what it needs."""
    from_width: int = 0
    """A narrower terminal does without."""


@dataclass(frozen=True, slots=True)
class _Section:
    columns: Sequence[_Column]
    rows: Sequence[Any]
    weight: int
    """The lightest is left out where there is no room for all."""

    @property
    def lines_min(self) -> int:
        """With less it would be its title, and how much is not shown."""
        return 1 + min(len(self.rows), 2)

    def draw(self, width: int, rows_max: int) -> RenderableType:
        """With so many rows at the most, the last of which says how many there are besides."""
        table = Table(box=None, header_style="bold reverse", pad_edge=False, padding=(0, 1, 0, 0), width=width)
        columns = [column for column in self.columns if width >= column.from_width]
        for column in columns:
            justify: JustifyMethod = "left" if column.share else "right"
            ratio = column.share or None
            table.add_column(column.title, no_wrap=True, overflow="ellipsis", justify=justify, ratio=ratio)
        shown = self.rows if len(self.rows) <= rows_max else self.rows[: max(rows_max - 1, 0)]
        for row in shown:
            table.add_row(*(Text(one_line(column.show(row))) for column in columns))
        if len(shown) < len(self.rows) and rows_max:
            table.add_row(Text(f"{len(self.rows) - len(shown):,} more", "dim"))
        return table


def _names(names: Sequence[str], more: bool = False) -> str:
    return ", ".join([*names, *(["..."] if more else [])]) or "-"


def _count_of(names: Sequence[str]) -> str:
    return f"{len(names):,}"


def _topics(rows: Sequence[TopicReport], names_always: bool = False) -> _Section:
    columns = (
        _Column("TOPIC", lambda row: row.label, 3),
        _Column("MSG/S", lambda row: rate(row.messages_per_s)),
        _Column("B/S", lambda row: quantity(row.bytes_per_s)),
        _Column("MSGS", lambda row: quantity(row.messages)),
        _Column("PUB", lambda row: _count_of(row.publishers)),
        _Column("SUB", lambda row: _count_of(row.subscribers)),
        _Column("PUBLISHERS", lambda row: _names(row.publishers), 2, 0 if names_always else _WIDE),
        _Column("SUBSCRIBERS", lambda row: _names(row.subscribers), 2, 0 if names_always else _WIDE),
    )
    return _Section(columns, rows, 2)


def _senders(rows: Sequence[SenderReport]) -> _Section:
    columns = (
        _Column("SENDER", lambda row: row.label, 3),
        _Column("LANE", lambda row: "-" if row.lane is None else str(row.lane), from_width=_MEDIUM),
        _Column("MSG/S", lambda row: rate(row.messages_per_s)),
        _Column("B/S", lambda row: quantity(row.bytes_per_s)),
        _Column("REPAIRS", lambda row: quantity(row.repairs), from_width=_MEDIUM),
        _Column("NACKS", lambda row: quantity(row.nacks), from_width=_MEDIUM),
        _Column("MISSED", lambda row: quantity(row.datagrams_missed)),
        _Column("GRTT", lambda row: span(row.grtt_s), from_width=_MEDIUM),
        _Column("MSGS", lambda row: quantity(row.messages), from_width=_WIDE),
        _Column("BYTES", lambda row: quantity(row.bytes), from_width=_WIDE),
        _Column("PARITY", lambda row: quantity(row.parity), from_width=_WIDE),
        _Column("REPAIRS/S", lambda row: rate(row.repairs_per_s), from_width=_WIDE),
        _Column("NODE", lambda row: f"{row.node_id:08x}", from_width=_WIDE),
        _Column("ADDRESS", lambda row: row.address or "-", 2, from_width=_WIDE),
    )
    return _Section(columns, rows, 3)


def _receivers(rows: Sequence[ReceiverReport]) -> _Section:
    columns = (
        _Column("RECEIVER", lambda row: row.label, 3),
        _Column("CONFIRMS IN", lambda row: "-" if row.given_up_by else span(row.confirm_s)),
        _Column("AWAITED", lambda row: "given up" if row.given_up_by else span(row.awaited_s)),
        _Column("NACKS", lambda row: quantity(row.nacks), from_width=_MEDIUM),
        _Column("NACKS/S", lambda row: rate(row.nacks_per_s), from_width=_MEDIUM),
        _Column("ASKED", lambda row: quantity(row.requests), from_width=_WIDE),
        _Column("ACKS", lambda row: quantity(row.acks), from_width=_WIDE),
        _Column("NODE", lambda row: f"{row.node_id:08x}", from_width=_WIDE),
        _Column("ADDRESS", lambda row: row.address or "-", 2, from_width=_WIDE),
    )
    return _Section(columns, rows, 4)


def _connections(rows: Sequence[ConnectionReport]) -> _Section:
    columns = (
        _Column("CONNECTION", lambda row: row.label, 2),
        _Column("NODE", lambda row: f"{row.node_id:08x}", from_width=_MEDIUM),
        _Column("ADDRESS", lambda row: row.address or "-", 2, _MEDIUM),
        _Column("SEEN", lambda row: span(row.seen_s)),
        _Column("PUB", lambda row: _count_of(row.publishes)),
        _Column("SUB", lambda row: _count_of(row.subscriptions) + ("+" if row.subscribes_to_more else "")),
        _Column("GATEWAY", lambda row: row.gateway or "-", 1, from_width=_WIDE),
        _Column("PUBLISHES", lambda row: _names(row.publishes), 2, from_width=_WIDE),
        _Column("SUBSCRIBES", lambda row: _names(row.subscriptions, row.subscribes_to_more), 2, from_width=_WIDE),
    )
    return _Section(columns, rows, 0)


def _gateways(rows: Sequence[GatewayReport]) -> _Section:
    columns = (
        _Column("GATEWAY", lambda row: row.host, 2),
        _Column("ID", lambda row: "-" if row.gateway_id is None else f"{row.gateway_id:08x}", from_width=_MEDIUM),
        _Column("FORWARDS", lambda row: {None: "-", True: "yes", False: "no"}[row.is_forwarding]),
        _Column("MEMBERS", lambda row: f"{row.nodes:,}"),
    )
    return _Section(columns, rows, 1)


def _sections(report: BusReport) -> list[_Section]:
    made = (
        _topics(report.topics),
        _senders(report.senders),
        _receivers(report.receivers),
        _connections(report.connections),
        _gateways(report.gateways),
    )
    return [section for section in made if section.rows]


def _head(report: BusReport, place: str, is_down: bool) -> list[Text]:
    connections, topics = len(report.connections), len(report.topics)
    told = f"{people(connections, 'connection')}  {people(topics, 'topic')}"
    first = f"{place}  {span(report.seconds)}  {told}"
    repairs = sum(one.repairs_per_s for one in report.senders)
    nacks = sum(one.nacks_per_s for one in report.senders)
    missed = sum(one.datagrams_missed for one in report.senders)
    second = (
        f"{rate(report.messages_per_s)} msg/s  {quantity(report.bytes_per_s)}B/s  {rate(repairs)} repairs/s  "
        f"{rate(nacks)} NACKs/s  missed here {quantity(missed)}"
    )
    lines = [Text(first, "bold"), Text(second)]
    if report.slowest is not None:
        lines += _slowest(report.slowest)
    if is_down:
        lines.append(Text("the network interface is down", "bold red"))
    if report.overruns:
        lines.append(Text(f"this host was too slow for {report.overruns:,} datagrams: figures are too low", "red"))
    if not report.connections and not report.senders:
        lines.append(Text("Nobody is heard yet. Members announce themselves every 5 s; if none does: fjm2 doctor"))
    return lines


def _slowest(slow: ReceiverReport) -> list[Text]:
    """Nothing if it is not slow."""
    name, nacks = one_line(slow.label), f"{slow.nacks:,} NACKs"
    if slow.given_up_by:
        return [
            Text(f"given up: {name} by {one_line(_names(slow.given_up_by))}, too slow or dead; {nacks}", "bold red")
        ]
    if not slow.delay_s and not slow.nacks:
        return []
    return [
        Text(
            f"slowest receiver: {name}, {span(slow.delay_s)}, {nacks}",
            "bold yellow" if (slow.awaited_s or 0) >= _LONG_S else "",
        )
    ]


def draw(report: BusReport, place: str, width: int, height: int | None = None, is_down: bool = False) -> Group:
    """All of it, or what fits into so many lines."""
    head, sections = _head(report, place, is_down), _sections(report)
    if height is not None:
        while sections and sum(section.lines_min for section in sections) > height - len(head):
            sections.remove(min(sections, key=lambda section: section.weight))
    sizes = [len(section.rows) for section in sections]
    if height is not None:
        sizes = fit(sizes, height - len(head) - len(sections))
    for line in head:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*head, *(section.draw(width, size) for section, size in zip(sections, sizes, strict=True)))


def draw_topics(report: BusReport, width: int) -> RenderableType:
    """The topics alone, with everybody's name."""
    return _topics(report.topics, names_always=True).draw(width, len(report.topics))


def fit(wanted: Sequence[int], room: int) -> list[int]:
    """Lines for each: who wants less than its share leaves the rest to the others."""
    given, left = [0] * len(wanted), max(room, 0)
    for number, at in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        given[at] = min(wanted[at], left // (len(wanted) - number))
        left -= given[at]
    return given
