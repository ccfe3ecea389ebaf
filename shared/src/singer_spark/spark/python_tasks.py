"""Python functions in Spark tasks: these packages' code is sent along, so executors need not have them installed."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, TypeVar

from pyspark import SparkContext, cloudpickle

import singer_spark
from singer_spark.spark.cluster import is_local, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    import pyarrow as pa
    from pyspark.sql import SparkSession

R = TypeVar("R")


def send_along(session: SparkSession, package: ModuleType) -> None:
    """Let tasks of the session call functions of this package, and of `singer_spark`."""
    _by_value(package)
    if not is_remote(session):
        _settle(session.sparkContext)


def in_task(context: SparkContext, package: ModuleType, work: Callable[[], R]) -> R:
    """Run a package's function in a task; needs no session."""
    _by_value(package)
    _settle(context)
    # The JVM's own `collect`, as PySpark's leaves open the socket from which it reads results.
    (found,) = context.parallelize([0], 1).map(lambda _: work())._jrdd.collect()
    result: R
    (result,) = pickle.loads(found)
    return result


def in_remote_task(session: SparkSession, package: ModuleType, work: Callable[[], R]) -> R:
    """Run a package's function in a task of Spark Connect."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    _by_value(package)

    def worked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(work())]})

    seen = Observation()
    rows = session.range(0, 1, 1, 1).mapInArrow(worked, "result binary")
    rows.observe(seen, F.max("result").alias("result")).write.format("noop").mode("overwrite").save()
    result: R = pickle.loads(seen.get["result"])
    return result


def _by_value(package: ModuleType) -> None:
    for each in (package, singer_spark):
        # PySpark's copy of cloudpickle has no types.
        cloudpickle.register_pickle_by_value(each)  # type: ignore[no-untyped-call]


def _settle(context: SparkContext) -> None:
    conf = context.getConf()
    ours = sys.executable if is_local(conf.get("spark.master")) else "python3"
    context.pythonExec = str(conf.get("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", ours)))
    # The run itself reports a JVM that is gone; the accumulator server would also print a traceback.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
