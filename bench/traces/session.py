"""Spark sessions with settings that suit this pipeline on a laptop and on a cluster alike."""

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fjm2.errors
from fjm2.base.missing_extras import lack_of
from fjm2.errors import FJM2Error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
"""Oldest version of Java that runs Spark 4."""
_LOCAL_MEMORY: Final = "2g"
_CONNECT_S = 5.0
"""Longest time to connect to a cluster's master."""
_EXECUTOR_S = 120.0
"""Longest time for a cluster to provide the first executor."""
_POLL_S = 0.2
_ENDING_S = 0.5
"""Longest wait for a virtual machine that is about to end."""
SMALL_BYTES: Final = 16 << 20
"""Most bytes of lines, unpacked, that count as small: some 30,000 lines, of which one core is soon done."""
_PARTITION_BYTES: Final = 32 << 20
"""Bytes of lines for each partition of a shuffle."""
_PARTITIONS_MIN, _PARTITIONS_MAX = 8, 200
"""Bounds of the number of partitions. Spark joins small ones, but each costs all tasks before it."""
_SHORT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a virtual machine that ends before costly optimisation pays."""
_SMALL: Final = {
    "spark.driver.defaultJavaOptions": _SHORT_JAVA,
    # Compiling a query takes longer than running it on so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # One partition, and a plan that is made once: an adaptive plan runs each stage as a job.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
_WORKERS_NEED = ". Workers need what the extra spark of FJM2 installs; PYSPARK_PYTHON says which Python they run"
_QUIET = """\
rootLogger.level = error
logger.start.name = org.apache.spark.api.python.PythonGatewayServer
logger.start.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%ex{0}%n
"""


class SparkMissingError(FJM2Error):
    """Spark, or something it needs, is not installed. The message says how to install it."""


class SparkFailedError(FJM2Error):
    """Spark does not start, or a job failed. The message says why, in one line."""


def check_spark() -> None:
    """Raise SparkMissingError if Spark, pyarrow or Java is missing."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkMissingError(lack_of(error, "fjm2-bench traces", "spark")) from error
    home = os.environ.get("JAVA_HOME")
    if not home and shutil.which("java") is None:
        raise SparkMissingError(f"Spark needs Java {JAVA_MIN} or newer (e.g. apt install default-jre-headless)")
    if home and not (Path(home) / "bin" / "java").exists():
        raise SparkMissingError(f"JAVA_HOME={home}: no Java there")


def suited(master: str, work_bytes: int) -> tuple[str, dict[str, str]]:
    """Return the master and the settings for work on lines of so many bytes, if all of Spark is to be on this machine.

    The figures are the same whatever the settings are.
    """
    if not master.startswith("local"):
        return master, {}
    if work_bytes <= SMALL_BYTES:
        return ("local[1]" if master == "local[*]" else master), dict(_SMALL)
    partitions = min(max(work_bytes // _PARTITION_BYTES, _PARTITIONS_MIN), _PARTITIONS_MAX)
    return master, {"spark.sql.shuffle.partitions": str(partitions)}


def spark_session(
    master: str = "local[*]",
    *,
    name: str = "fjm2 traces",
    memory: str | None = None,
    settings: dict[str, str] | None = None,
) -> "SparkSession":
    """Return a session. `memory` is the driver's if the master is local, and each executor's on a cluster."""
    check_spark()
    check_master(master)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _SHORT_JAVA)  # of the machine that only makes a command line
    is_local = master.startswith("local")
    folder = Path(tempfile.mkdtemp(prefix="fjm2-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(_QUIET)
    options: dict[str, Any] = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Otherwise Python tells Spark where each column was made, which takes longer than making it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # A task's lines belong to a few days: this many files may be open at once, so that rows need not be sorted.
        "spark.sql.maxConcurrentOutputFileWriters": "16",
        # Groups of one task that are held in memory for percentiles. Beyond that they are sorted.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1024",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        ("spark.driver.memory" if is_local else "spark.executor.memory"): memory or _LOCAL_MEMORY,
        # Spilled data is removed with us, however we end.
        "spark.local.dir": str(folder),
        **(settings or {}),
    }
    if is_local:
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | (settings or {})
    configuration = SparkConf().setAppName(name).setMaster(master).setAll(list(options.items()))
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        SparkContext.getOrCreate(configuration)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)  # Spark's handler would stop all jobs first, each with a traceback
        spark = SparkSession.builder.config(conf=configuration).getOrCreate()
    except Exception as error:
        raise SparkFailedError(f"Spark does not start at {master}: {reason_of(error)}") from error
    spark.sparkContext.setLogLevel("ERROR")
    # This is private, but there is no other way: the server would print a traceback if the machine ends before us.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    if not is_local:
        _await_executor(spark, master, str(options["spark.executor.memory"]))
        spark.sparkContext.addPyFile(str(_zip_of_packages(folder)))
    return spark


def reason_of(error: Exception) -> str:
    """Return Spark's error in one line: the last Python exception, or else the innermost cause, in its longest form."""
    text = str(error)
    _, _, python = text.partition("Traceback (most recent call last)")
    if raised := re.findall(r"^((?:\w+\.)*\w+(?:Error|Exception)): (.+)$", python, re.MULTILINE):
        name, said = raised[-1]
        hint = _WORKERS_NEED if name in ("ModuleNotFoundError", "ImportError") else ""
        return f"{name}: {said}{hint}"
    lines = [line.strip() for line in text.splitlines()]
    causes = [_without_class(line) for line in lines if line.startswith("Caused by: ")]
    others = [_without_class(line) for line in lines if line and not line.startswith("An error occurred while")]
    return max((cause for cause in causes if causes[-1] in cause), key=len, default=(others or [repr(error)])[0])


def _without_class(line: str) -> str:
    """Remove the class name that Java puts before a message."""
    return re.sub(r"^(?:Caused by)?: *(?:[\w$]+\.[\w.$]+: *)?", "", line)


def has_ended(spark: "SparkSession") -> bool:
    """Return True if the virtual machine that we started is gone. That may take a moment after the first error."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    try:
        gateway.proc.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def children() -> frozenset[int]:
    """Return the ids of this process's children; none if the system does not report them."""
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return frozenset(map(int, task.read_text().split())) if task.exists() else frozenset()


def kill_all_but(others: frozenset[int]) -> None:
    """Kill all children of this process but `others`: the virtual machine. Its unfinished files do no harm."""
    for child in children() - others:  # if no child is known, the virtual machine notices that we are gone
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def check_master(master: str) -> None:
    """Raise SparkFailedError if the master cannot be reached. Spark itself would try for a minute."""
    if not master.startswith("spark://"):
        return
    faults = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            raise SparkFailedError(f"{master}: expected spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except (OSError, OverflowError) as error:
            faults.append(f"{place}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise SparkFailedError(f"there is no Spark master at {'; '.join(faults)}")


def _await_executor(spark: "SparkSession", master: str, memory: str) -> None:
    """Wait for the first executor, or raise SparkFailedError. Spark would wait for ever."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + _EXECUTOR_S
    while len(tracker.getExecutorInfos()) < 2:  # the first is the driver
        if time.monotonic() > deadline:
            raise SparkFailedError(
                f"{master}: no worker took us within {_EXECUTOR_S:g} s: expected one with a free core and {memory} of "
                "memory (--memory) that can connect to us (spark.driver.host)"
            )
        time.sleep(_POLL_S)


def _zip_of_packages(folder: Path) -> Path:
    """Pack FJM2 for workers that have only Python, numpy and pyarrow."""
    path = folder / "fjm2-workers.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, root in (("fjm2", Path(fjm2.errors.__file__).parent), ("fjm2bench", Path(__file__).parents[1])):
            for file in sorted(root.rglob("*.py")):
                archive.write(file, name / file.relative_to(root))
    return path
