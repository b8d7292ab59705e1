"""Tests that the pipeline computes the same figures in each way that it can run.

It runs in this process, on a real cluster, and as a stream that is killed and restarted.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from fjm2bench.traces.generate import generate
from fjm2bench.traces.ingest import batches, ingest, read_table
from fjm2bench.traces.refresh import aggregate
from fjm2bench.traces.stream import stream
from fjm2bench.traces.warehouse import Warehouse, WarehouseError
from pyspark.sql import SparkSession
from sparks import JAVA, OPTIONS, Sparks
from trace_lines import T, encode, sample, write
from trace_tables import contents

SPARK_CLASS = Path(pyspark.__path__[0]) / "bin" / "spark-class"
START_S = 120.0
ON_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.defaultJavaOptions": JAVA,
}
COMPILED = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Settings under which Spark compiles queries, as outside of tests."""
LINES = 4000
"""Number of lines of traces: enough for two batches of a stream."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("traces")
    generate(made, LINES)
    return made


@pytest.fixture(scope="module")
def expected(sparks: Sparks, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Run `ingest` and `aggregate` on the folder in this process. Return the contents of the warehouse."""
    warehouse = Warehouse(tmp_path_factory.mktemp("local"))
    ingest(sparks.here(), folder, warehouse, settle_s=0)
    aggregate(sparks.here(), warehouse)
    return contents(sparks.here(), warehouse)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {START_S} s for {what}"
        time.sleep(0.1)


@contextmanager
def running(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that writes to a log, and kill it at the end."""
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_LAUNCHER_OPTS": JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, port: int, workers: int) -> Iterator[str]:
    """Start a master and workers of Spark, each in its own process. Yield the master's URL."""
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = folder / "master.log"
        where = ("--host", "127.0.0.1", "--webui-port", "0")
        deploy = "org.apache.spark.deploy"
        stack.enter_context(running(log, str(SPARK_CLASS), f"{deploy}.master.Master", *where, "--port", str(port)))
        until(
            lambda: b"Bound MasterWebUI" in log.read_bytes() or b"I have been elected" in log.read_bytes(), "the master"
        )
        size = ("--cores", "1", "--memory", "600m")
        for number in range(workers):
            work = ("--work-dir", str(folder / f"work{number}"), master)
            worker = (str(SPARK_CLASS), f"{deploy}.worker.Worker", *where, *size, *work)
            stack.enter_context(running(folder / f"worker{number}.log", *worker))
        for number in range(workers):
            log = folder / f"worker{number}.log"
            until(lambda log=log: b"Successfully registered" in log.read_bytes(), "a worker")  # type: ignore[misc]
        yield master


def came_with_the_job(spark: SparkSession) -> bool:
    """Return True if a worker uses FJM2 from the archive that the driver sent to it."""

    def where(_: int) -> str:
        import fjm2bench.traces.lines

        return fjm2bench.traces.lines.__file__

    return ".zip" in spark.sparkContext.parallelize([0]).map(where).first()


def executors_of(spark: SparkSession) -> int:
    """Return the number of executors, including the driver's own."""
    return len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos())


@pytest.mark.nightly
def test_a_worker_reads_all_lines(sparks: Sparks, tmp_path: Path, port: int) -> None:
    (traces := tmp_path / "traces").mkdir()
    made = generate(traces, 500)
    warehouse = Warehouse(tmp_path / "warehouse")
    with cluster(tmp_path, port, workers=1) as master, sparks.at(master, "512m", ON_CLUSTER) as spark:
        assert spark.sparkContext.master == master
        done = ingest(spark, traces, warehouse, settle_s=0)
        assert came_with_the_job(spark)
        assert executors_of(spark) == 1 + 1
    assert done.counts == {"rows": made.good, "results": made.results, "bad": made.bad.total()}
    assert done.reasons == made.bad


@pytest.mark.nightly
def test_a_cluster_computes_the_same_figures(
    sparks: Sparks, folder: Path, expected: dict[str, object], tmp_path: Path, port: int
) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    settings = ON_CLUSTER | COMPILED
    with cluster(tmp_path, port, workers=2) as master, sparks.at(master, "512m", settings) as spark:
        assert spark.sparkContext.master == master
        ingest(spark, folder, warehouse, settle_s=0)
        aggregate(spark, warehouse)
        assert came_with_the_job(spark)
        assert executors_of(spark) == 1 + 2
    assert contents(sparks.here(), warehouse) == expected


def stream_command(folder: Path, warehouse: Path, *more: str) -> list[str]:
    """Return the command of a stream with small batches, so that it can be killed between two of them."""
    options = ["--every", "0", "--settle", "0", "--batch-mib", "1", "--master", "local[1]", "--memory", "1g", *more]
    program = [sys.executable, "-m", "fjm2bench", "traces", "stream", str(folder), str(warehouse), *options]
    return [*program, *OPTIONS]


@pytest.mark.nightly
def test_a_killed_stream_continues_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that is killed after its first batch, and one that goes on in its warehouse, have each line once.

    Its virtual machine is killed, as by the kernel when memory runs out. That is reported.
    """
    folder, warehouse = tmp_path / "traces", Warehouse(tmp_path / "warehouse")
    path = write(folder, "a.jsonl", [sample(seq=seq) for seq in range(20)])
    with running(tmp_path / "log", *stream_command(folder, warehouse.path)) as process:
        until(lambda: process.poll() is not None or len(batches(warehouse)) >= 1, "a batch")
        (machine,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(machine), signal.SIGKILL)
        assert process.wait(20) == 1
    said = (tmp_path / "log").read_text()
    expected = "its process has ended, perhaps killed for lack of memory: try another --memory"
    assert said.splitlines()[-1] == f"Error: Spark failed: {expected}"
    assert "Traceback" not in said
    assert len(batches(warehouse)) == 1
    with path.open("ab") as file:  # what was read grows, and there is a new file
        file.write(encode([sample(seq=seq) for seq in range(20, 25)]))
    write(folder, "b.jsonl", [sample(seq=seq) for seq in range(25, 30)])
    query = stream(spark, folder, warehouse, lambda: T + 3600, settle_s=0, trigger_s=0)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = read_table(spark, warehouse, "rows")
    assert rows is not None
    assert sorted(row["seq"] for row in rows.select("seq").collect()) == list(range(30))
    assert len(batches(warehouse)) > 1


@pytest.mark.nightly
def test_a_killed_and_restarted_stream_gives_the_same_figures(
    spark: SparkSession, folder: Path, expected: dict[str, object], tmp_path: Path
) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    with running(tmp_path / "first.log", *stream_command(folder, warehouse.path, "--once")) as process:
        until(lambda: process.poll() is not None or len(batches(warehouse)) >= 1, "a batch")
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, (tmp_path / "first.log").read_text()
    before = len(batches(warehouse))
    command = stream_command(folder, warehouse.path, "--once")
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert len(batches(warehouse)) > before > 0
    aggregate(spark, warehouse)
    assert contents(spark, warehouse) == expected
    with pytest.raises(WarehouseError, match="traces stream"):
        ingest(spark, folder, warehouse)
