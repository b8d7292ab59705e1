"""One Spark for all tests here."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    from pyspark.sql import SparkSession
except ImportError:
    pytest.skip("pyspark is not installed (pip install 'fjm2[spark]')", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Java is not installed", allow_module_level=True)

from fjm2bench.traces.session import spark_session

# Compiling takes longer than to compute so few rows without. The processes that tests start do compile, and have to
# come to the same.
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("local[2]", memory="1g", settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where traces are written to."""
    made = tmp_path / "traces"
    made.mkdir()
    return made
