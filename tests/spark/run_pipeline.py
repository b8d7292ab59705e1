"""Ingest and aggregate in a process of its own: MASTER FOLDER WAREHOUSE. Says where workers have FJM2 from."""

import sys
from pathlib import Path

from fjm2bench.traces.ingest import ingest
from fjm2bench.traces.refresh import aggregate
from fjm2bench.traces.session import spark_session
from fjm2bench.traces.warehouse import Warehouse


def _where(_: int) -> str:
    import fjm2bench.traces.lines

    return fjm2bench.traces.lines.__file__


def main() -> None:
    master, folder, warehouse = sys.argv[1:]
    settings = {
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = spark_session(master, memory="512m", settings=settings)
    ingest(spark, folder, Warehouse(Path(warehouse)), settle_s=0)
    aggregate(spark, Warehouse(Path(warehouse)))
    context = spark.sparkContext
    print(context.parallelize([0]).map(_where).first())
    print(len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1)
    spark.stop()


main()
