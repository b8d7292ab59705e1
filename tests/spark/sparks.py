"""Spark sessions for tests, one at a time and all in one Java virtual machine. Their settings suit few rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fjm2bench.traces.session import spark_session
from pyspark.sql import SparkSession

JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options that switch off costly optimisation. No test's process lives long enough to profit from it."""
SETTINGS: Final = {
    "spark.driver.defaultJavaOptions": JAVA,
    # Compiling a query takes longer than running it on so few rows. A test on a cluster does compile, with equal
    # results.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
OPTIONS: Final = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
"""`SETTINGS` as options of a command line."""


class Sparks:
    """The Spark session that tests share. Starting a virtual machine and loading Spark takes longer than most tests."""

    def __init__(self) -> None:
        self._here: SparkSession | None = None

    def here(self) -> SparkSession:
        """Return the shared session, which runs in this process. Start it if necessary."""
        if self._here is None:
            self._here = spark_session("local[2]", memory="1g", settings=SETTINGS)
        return self._here

    @contextmanager
    def at(self, master: str, memory: str, settings: dict[str, str]) -> Iterator[SparkSession]:
        """Yield a session on another master, and stop the shared session for that time.

        The virtual machine keeps all `SETTINGS` that `settings` does not override.
        """
        self.stop()
        path = list(sys.path)
        session = spark_session(master, memory=memory, settings=settings)
        try:
            yield session
        finally:
            session.stop()
            sys.path[:] = path  # remove the copy of FJM2 that was sent to the workers

    def stop(self) -> None:
        if self._here is not None:
            self._here.stop()
            self._here = None
