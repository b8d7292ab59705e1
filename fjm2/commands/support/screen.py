"""Formats the report of a bus as tables that fit a terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from fjm2.base.quantities import counted, one_line
from fjm2.watch import (
    BusReport,
    ConnectionReport,
    GatewayReport,
    KeeperReport,
    ReceiverReport,
    SenderReport,
    TopicReport,
)

from .live_view import quantity, rate, span

_MEDIUM_WIDTH: Final = 60  # columns of a narrow window
_FULL_WIDTH: Final = 120  # columns of a full-screen terminal
_LONG_WAIT_S: Final = 1.0
"""Wait of a sender for a receiver that counts as long. The receiver is then shown in yellow."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    show: Callable[[Any], str]
    share: int = 0
    """Share of the width that columns of numbers leave free. Columns of numbers have 0, and take the width they
    need."""
    from_width: int = 0
    """Smallest width of a terminal that shows the column."""


@dataclass(frozen=True, slots=True)
class _Section:
    columns: Sequence[_Column]
    rows: Sequence[Any]
    weight: int
    """Importance of the section. The section with the lowest weight is omitted first."""

    @property
    def lines_min(self) -> int:
        """Smallest useful number of lines. Fewer would hold only the title, and the number of hidden rows."""
        return 1 + min(len(self.rows), 2)

    def draw(self, width: int, rows_max: int) -> RenderableType:
        """Draw at most `rows_max` rows. If there are more, the last row shows how many are hidden."""
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


def _subscribers(row: TopicReport) -> str:
    return _names([*row.subscribers, *(f"{label}?" for label in row.possible_subscribers)])


def _topics(rows: Sequence[TopicReport], names_always: bool = False) -> _Section:
    columns = (
        _Column("TOPIC", lambda row: row.label, 3),
        _Column("MSG/S", lambda row: rate(row.messages_per_s)),
        _Column("B/S", lambda row: quantity(row.bytes_per_s)),
        _Column("MSGS", lambda row: quantity(row.messages)),
        _Column("PUB", lambda row: _count_of(row.publishers)),
        _Column("SUB", lambda row: _count_of(row.subscribers) + ("+" if row.possible_subscribers else "")),
        _Column("PUBLISHERS", lambda row: _names(row.publishers), 2, 0 if names_always else _FULL_WIDTH),
        _Column("SUBSCRIBERS", _subscribers, 2, 0 if names_always else _FULL_WIDTH),
    )
    return _Section(columns, rows, 2)


def _senders(rows: Sequence[SenderReport]) -> _Section:
    columns = (
        _Column("SENDER", lambda row: row.label, 3),
        _Column("LANE", lambda row: "-" if row.lane is None else str(row.lane), from_width=_MEDIUM_WIDTH),
        _Column("MSG/S", lambda row: rate(row.messages_per_s)),
        _Column("B/S", lambda row: quantity(row.bytes_per_s)),
        _Column("REPAIRS", lambda row: quantity(row.repairs), from_width=_MEDIUM_WIDTH),
        _Column("NACKS", lambda row: quantity(row.nacks), from_width=_MEDIUM_WIDTH),
        _Column("MISSED", lambda row: quantity(row.datagrams_missed)),
        _Column("GRTT", lambda row: span(row.grtt_s), from_width=_MEDIUM_WIDTH),
        _Column("MSGS", lambda row: quantity(row.messages), from_width=_FULL_WIDTH),
        _Column("BYTES", lambda row: quantity(row.bytes), from_width=_FULL_WIDTH),
        _Column("PARITY", lambda row: quantity(row.parity), from_width=_FULL_WIDTH),
        _Column("REPAIRS/S", lambda row: rate(row.repairs_per_s), from_width=_FULL_WIDTH),
        _Column("NODE", lambda row: f"{row.node_id:08x}", from_width=_FULL_WIDTH),
        _Column("ADDRESS", lambda row: row.address or "-", 2, from_width=_FULL_WIDTH),
    )
    return _Section(columns, rows, 3)


def _awaited(row: ReceiverReport) -> str:
    if row.given_up_by:
        return "given up"
    return f"full {span(row.awaited_s)}" if row.is_full and row.awaited_s else span(row.awaited_s)


def _receivers(rows: Sequence[ReceiverReport]) -> _Section:
    columns = (
        _Column("RECEIVER", lambda row: row.label, 3),
        _Column("CONFIRMS IN", lambda row: "-" if row.given_up_by else span(row.confirm_s)),
        _Column("AWAITED", _awaited),
        _Column("NACKS", lambda row: quantity(row.nacks), from_width=_MEDIUM_WIDTH),
        _Column("NACKS/S", lambda row: rate(row.nacks_per_s), from_width=_MEDIUM_WIDTH),
        _Column("ASKED", lambda row: quantity(row.requests), from_width=_FULL_WIDTH),
        _Column("ACKS", lambda row: quantity(row.acks), from_width=_FULL_WIDTH),
        _Column("NODE", lambda row: f"{row.node_id:08x}", from_width=_FULL_WIDTH),
        _Column("ADDRESS", lambda row: row.address or "-", 2, from_width=_FULL_WIDTH),
    )
    return _Section(columns, rows, 4)


def _subscribes(row: ConnectionReport) -> str:
    if row.is_keeper:
        return "keeper"
    return _count_of(row.subscriptions) + ("+" if row.subscribes_to_more else "")


def _connections(rows: Sequence[ConnectionReport]) -> _Section:
    columns = (
        _Column("CONNECTION", lambda row: row.label, 2),
        _Column("NODE", lambda row: f"{row.node_id:08x}", from_width=_MEDIUM_WIDTH),
        _Column("ADDRESS", lambda row: row.address or "-", 2, _MEDIUM_WIDTH),
        _Column("SEEN", lambda row: span(row.seen_s)),
        _Column("PUB", lambda row: _count_of(row.publishes)),
        _Column("SUB", _subscribes),
        _Column("GATEWAY", lambda row: row.gateway or "-", 1, from_width=_FULL_WIDTH),
        _Column("PUBLISHES", lambda row: _names(row.publishes), 2, from_width=_FULL_WIDTH),
        _Column("SUBSCRIBES", lambda row: _names(row.subscriptions, row.subscribes_to_more), 2, from_width=_FULL_WIDTH),
    )
    return _Section(columns, rows, 0)


def _gateways(rows: Sequence[GatewayReport]) -> _Section:
    columns = (
        _Column("GATEWAY", lambda row: row.host, 2),
        _Column("ID", lambda row: "-" if row.gateway_id is None else f"{row.gateway_id:08x}", from_width=_MEDIUM_WIDTH),
        _Column("FORWARDS", lambda row: {None: "-", True: "yes", False: "no"}[row.is_forwarding]),
        _Column("MEMBERS", lambda row: f"{row.nodes:,}"),
    )
    return _Section(columns, rows, 1)


def _keepers(rows: Sequence[KeeperReport]) -> _Section:
    columns = (
        _Column("KEEPER", lambda row: f"{row.keeper_id[:8]} at {row.host}", 2),
        _Column("STATE", lambda row: row.state + (", full" if row.is_full else "")),
        _Column("EPOCH", lambda row: f"{row.epoch:,}"),
        _Column("LAG", lambda row: f"{row.lag:,}"),
        _Column("DISK", lambda row: f"{quantity(row.store_bytes)}B"),
        _Column("FREE", lambda row: f"{quantity(row.free_bytes)}B", from_width=_MEDIUM_WIDTH),
        _Column("SYNC", lambda row: span(row.sync_s), from_width=_MEDIUM_WIDTH),
        _Column("ALLOWED", lambda row: f"{quantity(row.allowed_bytes)}B", from_width=_FULL_WIDTH),
    )
    return _Section(columns, rows, 2)


def _sections(report: BusReport) -> list[_Section]:
    made = (
        _topics(report.topics),
        _senders(report.senders),
        _receivers(report.receivers),
        _connections(report.connections),
        _gateways(report.gateways),
        _keepers(report.keepers),
    )
    return [section for section in made if section.rows]


def _head(report: BusReport, place: str, is_down: bool) -> list[Text]:
    connections, topics = len(report.connections), len(report.topics)
    told = f"{counted(connections, 'connection')}  {counted(topics, 'topic')}"
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
        missed_here = counted(report.overruns, "datagram")
        lines.append(Text(f"this host was too slow for {missed_here}: the numbers are too low", "red"))
    if not report.connections and not report.senders:
        lines.append(
            Text("No member is heard yet. They announce themselves every 5 s; if none appears, run fjm2 doctor.")
        )
    return lines


def _slowest(slow: ReceiverReport) -> list[Text]:
    """Return lines about the slowest receiver, or no lines if it is not slow."""
    name, nacks = one_line(slow.label), counted(slow.nacks, "NACK")
    if slow.given_up_by:
        return [
            Text(f"given up: {name} by {one_line(_names(slow.given_up_by))}, too slow or dead; {nacks}", "bold red")
        ]
    if not slow.delay_s and not slow.nacks:
        return []
    return [
        Text(
            f"slowest receiver: {name}{', full' if slow.is_full else ''}, {span(slow.delay_s)}, {nacks}",
            "bold yellow" if (slow.awaited_s or 0) >= _LONG_WAIT_S else "",
        )
    ]


def draw(report: BusReport, place: str, width: int, height: int | None = None, is_down: bool = False) -> Group:
    """Draw the whole report, or as much as fits into `height` lines."""
    head, sections = _head(report, place, is_down), _sections(report)
    if height is not None:
        while sections and sum(section.lines_min for section in sections) > height - len(head):
            sections.remove(min(sections, key=lambda section: section.weight))
    sizes = [len(section.rows) for section in sections]
    if height is not None:
        sizes = fit(sizes, height - len(head) - len(sections))
    head = [_shortened(line, width) for line in head]
    for line in head:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*head, *(section.draw(width, size) for section, size in zip(sections, sizes, strict=True)))


def _shortened(line: Text, width: int) -> Text:
    """Leave out the last parts of a line that is too long, so that no figure is cut."""
    while line.cell_len > width:
        end = max(line.plain.rfind("  "), line.plain.rfind(", "))
        if end <= 0:
            break
        line = line[:end]
    return line


def draw_topics(report: BusReport, width: int) -> RenderableType:
    """Draw the topics only, with the names of all publishers and subscribers."""
    return _topics(report.topics, names_always=True).draw(width, len(report.topics))


def fit(wanted: Sequence[int], room: int) -> list[int]:
    """Return the number of lines for each section, distributed fairly. Lines that a section does not need go to the
    others."""
    given, left = [0] * len(wanted), max(room, 0)
    for number, at in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        given[at] = min(wanted[at], left // (len(wanted) - number))
        left -= given[at]
    return given
