"""One Spark session at a time, all in one virtual machine, with settings that are quick for few rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fjm2bench.traces.session import spark_session
from pyspark.sql import SparkSession

JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options against costly optimisation: no test's process lives long enough to profit from it."""
SETTINGS: Final = {
    "spark.driver.defaultJavaOptions": JAVA,
    # Compiling a query takes longer than running it on so few rows. A test on a cluster compiles, with the same result.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
OPTIONS: Final = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
"""The same options for commands."""


class Sparks:
    """Return the shared session. Starting a virtual machine and loading Spark takes longer than most tests."""

    def __init__(self) -> None:
        self._here: SparkSession | None = None

    def here(self) -> SparkSession:
        """The one for all tests but those that need another."""
        if self._here is None:
            self._here = spark_session("local[2]", memory="1g", settings=SETTINGS)
        return self._here

    @contextmanager
    def at(self, master: str, memory: str, settings: dict[str, str]) -> Iterator[SparkSession]:
        """One elsewhere; meanwhile there is none here. The virtual machine keeps `SETTINGS` that are not set anew."""
        self.stop()
        path = list(sys.path)
        session = spark_session(master, memory=memory, settings=settings)
        try:
            yield session
        finally:
            session.stop()
            sys.path[:] = path  # without FJM2 as the workers were given it

    def stop(self) -> None:
        if self._here is not None:
            self._here.stop()
            self._here = None
