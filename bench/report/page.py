"""The page of a report: plots, tables and texts in one HTML file, which refers to no other files."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from fjm2.base.quantities import counted

from . import drawing
from .csv_tables import csv_of
from .plot_data import Plot
from .style import name_of

_NARROW = "(max-width: 640px)"
_ROWS_MAX = 400
"""Most points in a table of the page, which would be slow with more. The CSV file has all."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, its title and the text above it."""

    key: str
    title: str
    text: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    """Indexes of the columns that hold numbers."""


def page_of(title: str, lead: Sequence[str], plots: Sequence[Plot], tables: Sequence[Table]) -> str:
    """Return the whole page. Tables whose keys begin with `top-` come before the plots."""
    before = [table for table in tables if table.key.startswith("top-")]
    after = [table for table in tables if table not in before]
    style = (files(__package__) / "report.css").read_text()
    parts: list[Table | Plot] = [*before, *plots, *after]
    contents = "".join(f'<li><a href="#{part.key}">{escape(part.title)}</a></li>' for part in parts)
    body = "\n".join(
        [
            f"<header><h1>{escape(title)}</h1>",
            *(f"<p>{escape(line)}</p>" for line in lead),
            f"</header><nav><ul>{contents}</ul></nav><main>",
            *map(_table, before),
            *map(_figure, plots),
            *map(_table, after),
            "</main>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def alt_of(plot: Plot) -> str:
    """Return the text for readers who cannot see the picture."""
    parts = []
    for panel in plot.panels:
        x_label = "system" if panel.x_scale == "rows" else panel.x_label
        y_label = panel.y_label or panel.x_label
        systems = ", ".join(dict.fromkeys(name_of(series.system) for series in panel.series))
        parts.append(f"{panel.title}: {y_label} by {x_label}, for {systems}")
    return f"{plot.title}. {'; '.join(parts)}. The figures are in the table below."


def _figure(plot: Plot) -> str:
    thesis = f" <small>{escape(plot.thesis)} of the thesis</small>" if plot.thesis else ""
    wide, narrow = (_data("image/svg+xml", drawing.svg(plot, is_narrow=is_narrow)) for is_narrow in (False, True))
    csv = csv_of(plot)
    link = f'<a download="{plot.key}.csv" href="{_data("text/csv", csv)}">{plot.key}.csv</a>'
    return (
        f'<section id="{plot.key}"><h2>{escape(plot.title)}{thesis}</h2><p>{escape(plot.text)}</p>'
        f'<figure><picture><source media="{_NARROW}" srcset="{narrow}">'
        f'<img class="plot" src="{wide}" alt="{escape(alt_of(plot))}"></picture></figure>'
        f"<details><summary>The figures</summary>{_points(plot)}"
        f"<p>With the ids of the runs behind each point: {link}. Look up the runs in the warehouse: "
        f"{escape(', '.join(plot.sources))}.</p></details></section>"
    )


def _points(plot: Plot) -> str:
    rows = []
    for panel in plot.panels:
        is_rows = panel.x_scale == "rows"
        for series in panel.series:
            for point in series.points:
                spread = "" if point.low == point.high else f"{_number(point.low)} to {_number(point.high)}"
                name = " ".join(filter(None, (name_of(series.system), series.name.removesuffix("_us"))))
                x = "" if is_rows else f"{point.x:g}"
                rows.append((panel.title, name, x, _number(point.y), spread, str(len(point.runs))))
    first = next(iter(plot.panels))
    is_rows = first.x_scale == "rows"
    x_label, y_label = ("", first.x_label) if is_rows else (first.x_label, first.y_label)
    if len({panel.y_label for panel in plot.panels}) > 1:
        y_label = " | ".join(panel.y_label for panel in plot.panels)
    headings = ("", "system", x_label, y_label, "least to most", "runs")
    more = f"<p>The first {_ROWS_MAX} of {counted(len(rows), 'point')}.</p>" if len(rows) > _ROWS_MAX else ""
    return _grid(headings, rows[:_ROWS_MAX], frozenset({2, 3, 4, 5})) + more


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(table: Table) -> str:
    return (
        f'<section id="{table.key}"><h2>{escape(table.title)}</h2><p>{escape(table.text)}</p>'
        f"{_grid(table.headings, table.rows, table.numbers)}</section>"
    )


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int]) -> str:
    head = "".join(_cell("th", text, index in numbers) for index, text in enumerate(headings))
    body = "".join(f"<tr>{_cells(row, numbers)}</tr>" for row in rows)
    return f'<div class="grid"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(row: Iterable[str], numbers: frozenset[int]) -> str:
    return "".join(_cell("td", text, index in numbers) for index, text in enumerate(row))


def _cell(tag: str, text: str, is_number: bool) -> str:
    return f"<{tag}{' class=n' if is_number else ''}>{escape(text)}</{tag}>"


def _data(kind: str, content: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content.encode()).decode()}"
