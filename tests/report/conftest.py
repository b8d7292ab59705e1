"""Fixtures: a warehouse with all kinds of results, and its report.

Both are made only once, since drawing the report takes longer than most tests.
"""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")

import made_warehouse
from fjm2bench.report import build


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("warehouse")
    made_warehouse.make(folder)
    return folder


@pytest.fixture(scope="session")
def page(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the report's page. The report's tables and pictures are in the same folder."""
    return build(warehouse, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def report(page: Path) -> Path:
    """Return the folder of the report."""
    return page.parent
