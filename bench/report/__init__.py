"""A report of what a warehouse holds: one page of HTML that needs nothing else, its plots as PNG, its figures as CSV.

`warehouse` reads Parquet, `plots` says what is to be shown, `draw` draws it, `page` writes the page.
"""

from .build import build

__all__ = ["build"]
