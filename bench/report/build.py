"""The files of a report: the page, a picture and a table for each plot, and FJM2's ratios to other systems."""

from pathlib import Path

from . import drawing, plots, ratios, tables, trace_plots
from .csv_tables import csv_of
from .page import page_of
from .warehouse import Warehouse

_TITLE = "FJM2: benchmarks and traces"


def build(warehouse: Path, to: Path) -> Path:
    """Write the report of a warehouse into a folder. Return the path of the page. Raise WarehouseError if there is
    no data.
    """
    store = Warehouse(warehouse)
    results = store.results()
    found = [*plots.of_results(results), *trace_plots.of_traces(store, {result.run for result in results})]
    shown = tables.tables_of(results, store.rows("aggregates/anomalies"))
    to.mkdir(parents=True, exist_ok=True)
    for plot in found:
        (to / f"{plot.key}.png").write_bytes(drawing.png(plot))
        (to / f"{plot.key}.csv").write_text(csv_of(plot))
    machine = next((table.rows for table in shown if table.key == "machine"), ())
    if results:
        (to / "standing.md").write_text(ratios.markdown_of(results, machine))
    page = to / "report.html"
    page.write_text(page_of(_TITLE, tables.lead_of(results), found, shown))
    return page
