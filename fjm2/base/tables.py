"""Tables of figures for terminals of any width. A figure is printed whole, or its column is left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_TEXT_CELLS_MIN: Final = 16
"""Width to which a column of text is wrapped before columns of figures are left out."""
_ANY_WIDTH: Final = 100_000
"""Width of output that is no terminal, such as a file: nothing has to be left out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    rank: int = 0
    """Order of being left out if the terminal is too narrow: the highest rank first, rank 0 never."""
    is_text: bool = False
    """True for words, which may be wrapped and are left-aligned; False for figures."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: Sequence[str]
    is_heading: bool = False
    """True if the first cell is the heading of the rows that follow, and the only cell."""
    begins_section: bool = False
    """True if a line separates the row from the one before."""


def print_table(
    console: Console,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    title: str | None = None,
    caption: str | None = None,
    box: Box | None = None,
) -> None:
    """Print a table with as many columns as fit, then the names of the others.

    If not even the columns of rank 0 fit, print each row as a list of titles and cells.
    """
    if not console.is_terminal:
        console.width = _ANY_WIDTH
    for rank in range(max(column.rank for column in columns), -1, -1):
        shown = [place for place, column in enumerate(columns) if column.rank <= rank]
        if _fits(console, [columns[place] for place in shown], _only(rows, shown), box):
            break
    else:
        _print_as_list(console, columns, rows, title)
        return
    some = [columns[place] for place in shown]
    console.print(_table(some, _only(rows, shown), title=title, caption=caption, box=box))
    left_out = [column.title for column in columns if column not in some]
    if left_out:
        console.print(f"without {', '.join(left_out)}: for want of width", highlight=False, style="dim")


def _only(rows: Sequence[Row], places: Sequence[int]) -> list[Row]:
    return [
        row if row.is_heading else Row([row.cells[place] for place in places], begins_section=row.begins_section)
        for row in rows
    ]


def _fits(console: Console, columns: Sequence[Column], rows: Sequence[Row], box: Box | None) -> bool:
    """Return True if every figure is shown whole, though texts may be wrapped."""
    options = console.options.update(width=_ANY_WIDTH)
    natural = Measurement.get(console, options, _table(columns, rows, box=box)).maximum
    spare = 0
    for place, column in enumerate(columns):
        if column.is_text:
            cells = (row.cells[place] for row in rows if place < len(row.cells))
            spare += max(0, max(map(cell_len, [column.title, *cells])) - max(cell_len(column.title), _TEXT_CELLS_MIN))
    return natural - spare <= console.width


def _table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    title: str | None = None,
    caption: str | None = None,
    box: Box | None = None,
) -> Table:
    table = Table(title=title, caption=caption, box=box, header_style="bold", pad_edge=box is not None)
    for column in columns:
        if column.is_text:
            table.add_column(column.title, overflow="fold")
        else:
            table.add_column(column.title, justify="right", no_wrap=True)
    for row in rows:
        if row.begins_section:
            table.add_section()
        cells = [Text(cell, style="bold" if row.is_heading else "") for cell in row.cells]
        table.add_row(*cells)
    return table


def _print_as_list(console: Console, columns: Sequence[Column], rows: Sequence[Row], title: str | None) -> None:
    """Print rows below each other, for a terminal that is very narrow. Long lines are continued on the next line.

    A figure that is wider than the terminal is left to the terminal to wrap.
    """
    if title is not None:
        console.print(Text(title, style="italic"), overflow="fold")
    for row in rows:
        if row.is_heading:
            console.print(Text(row.cells[0], style="bold"), overflow="fold")
            continue
        for column, cell in zip(columns, row.cells, strict=False):
            if cell:
                text = Text(cell) if column.is_text else Text(f"    {column.title} {cell}")
                is_too_wide = not column.is_text and cell_len(cell) > console.width
                console.print(text, overflow="ignore" if is_too_wide else "fold", soft_wrap=is_too_wide)
