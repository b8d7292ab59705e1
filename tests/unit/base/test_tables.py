"""Tests of tables for terminals: whatever the width, a figure is printed whole or not at all."""

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.box import HEAVY_HEAD
from rich.console import Console

from fjm2.base.tables import Column, Row, print_table

ROOT = Path(__file__).parents[3]
COLUMNS = [
    Column("series", is_text=True),
    Column("seconds", 4),
    Column("Mb/s out"),
    Column("Mb/s in"),
    Column("repairs", 2),
    Column("NACKs", 3),
    Column("lost"),
]
FIGURES = ["33,123.4", "912,345.6", "1,045.2", "12,345,678", "1,234,567", "98,765"]
ROWS = [Row(["lan desk-7-with-a-rather-long-name"], is_heading=True), Row(["  publisher 0x1234abcd lane 2", *FIGURES])]


def printed(width: int, columns: list[Column] = COLUMNS, rows: list[Row] = ROWS, *, is_terminal: bool = True) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=is_terminal, color_system=None)
    print_table(console, columns, rows, box=HEAVY_HEAD if width % 2 else None, title="Figures")
    return screen.getvalue()


@pytest.mark.parametrize("width", range(12, 140))
def test_no_width_cuts_a_figure(width: int) -> None:
    screen = printed(width)
    assert "…" not in screen
    assert all(len(line) <= width for line in screen.splitlines())
    found = re.findall(r"[0-9][0-9,]*(?:\.[0-9]+)?", screen.replace("0x1234abcd", "").replace("desk-7", ""))
    assert {one for one in found if len(one) > 1} <= set(FIGURES)
    for rank0 in (FIGURES[1], FIGURES[2], FIGURES[5]):
        assert rank0 in screen


def test_columns_are_left_out_by_rank_and_named() -> None:
    assert "for want of width" not in printed(140)
    assert "for want of width" not in printed(80)  # the name is wrapped
    assert "\nwithout seconds: for want of width" in printed(72)
    assert "\nwithout seconds, NACKs: for want of width" in printed(62)
    assert "\nwithout seconds, repairs, NACKs: for want of width" in printed(50)
    assert "    Mb/s out 912,345.6\n" in printed(30)  # a list, with everything


def test_what_is_no_terminal_has_every_column() -> None:
    screen = printed(20, is_terminal=False)
    assert all(figure in screen for figure in FIGURES)
    assert len(screen.splitlines()) <= 6


@given(
    st.lists(st.lists(st.integers(0, 10**12), min_size=3, max_size=3), min_size=1, max_size=4),
    st.text(st.characters(categories=("L", "N", "P")), max_size=40),
    st.integers(16, 120),
)
def test_figures_of_any_size_are_whole(numbers: list[list[int]], name: str, width: int) -> None:
    columns = [Column("name", is_text=True), Column("a"), Column("b", 1), Column("c", 2)]
    rows = [Row([name, *(f"{number:,}" for number in row)]) for row in numbers]
    screen = printed(width, columns, rows)
    for row in rows:
        assert row.cells[1] in screen


def test_every_table_of_figures_is_printed_so() -> None:
    """The live view of `fjm2 top` fits its figures into fixed columns, and has its own test."""
    found = {
        str(path.relative_to(ROOT))
        for root in ("fjm2", "fjm2d", "fjm2admin", "bench")
        for path in (ROOT / root).rglob("*.py")
        if "rich.table" in path.read_text()
    }
    assert found == {"fjm2/base/tables.py", "fjm2/commands/support/screen.py"}
