"""Reports of a warehouse: one HTML page that needs no other files, plots as PNG, and figures as CSV.

`warehouse` reads Parquet. `plots` and `trace_plots` choose what to show, of benchmarks and of traces; `panels` and
`plot_data` are what plots are made of. `drawing` draws them, `tables` makes the tables, `page` writes the page, and
`ratios` writes FJM2's ratios to other systems.
"""

from .build import build

__all__ = ["build"]
