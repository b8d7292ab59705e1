"""Fixtures of the tests that use Spark."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    from pyspark.sql import SparkSession
except ImportError:
    pytest.skip("pyspark is not installed (pip install '.[spark]')", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Java is not installed", allow_module_level=True)

from sparks import Sparks


@pytest.fixture(scope="session")
def sparks() -> Iterator[Sparks]:
    made = Sparks()
    yield made
    made.stop()


@pytest.fixture
def spark(sparks: Sparks) -> SparkSession:
    return sparks.here()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a new folder for traces."""
    made = tmp_path / "traces"
    made.mkdir()
    return made
