"""Spark's session: where it runs, and the settings that this work wants on a laptop and on a cluster alike."""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fjm2.errors
from fjm2.errors import FJM2Error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
_LOCAL_MEMORY: Final = "2g"
_QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


class SparkMissingError(FJM2Error):
    """Spark, or what it needs, is not installed."""


def check_spark() -> None:
    """Say what is missing, and how to get it."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkMissingError(f"{error.name} is not installed: pip install 'fjm2[spark]'") from error
    home = os.environ.get("JAVA_HOME")
    if not home and shutil.which("java") is None:
        raise SparkMissingError(f"Spark needs Java {JAVA_MIN} or newer (e.g. apt install default-jre-headless)")
    if home and not (Path(home) / "bin" / "java").exists():
        raise SparkMissingError(f"JAVA_HOME={home}: no Java there")


def spark_session(
    master: str = "local[*]",
    *,
    name: str = "fjm2 traces",
    memory: str | None = None,
    progress: bool = False,
    settings: dict[str, str] | None = None,
) -> "SparkSession":
    """A session. `memory` is the driver's where all is local, and each executor's on a cluster."""
    check_spark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = master.startswith("local")
    folder = Path(tempfile.mkdtemp(prefix="fjm2-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(_QUIET)
    options: dict[str, Any] = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # A task's lines are of a few days: so many files may be open at once, and nothing need be sorted.
        "spark.sql.maxConcurrentOutputFileWriters": "16",
        # Groups of one task that are held in memory while percentiles are taken; beyond, they are sorted.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1024",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        ("spark.driver.memory" if is_local else "spark.executor.memory"): memory or _LOCAL_MEMORY,
        **(settings or {}),
    }
    if is_local:
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | (settings or {})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if not is_local:
        spark.sparkContext.addPyFile(str(_zip_of_packages(folder)))
    return spark


def _zip_of_packages(folder: Path) -> Path:
    """FJM2 itself, for workers that have only Python, numpy and pyarrow."""
    path = folder / "fjm2-workers.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, root in (("fjm2", Path(fjm2.errors.__file__).parent), ("fjm2bench", Path(__file__).parents[1])):
            for file in sorted(root.rglob("*.py")):
                archive.write(file, name / file.relative_to(root))
    return path
