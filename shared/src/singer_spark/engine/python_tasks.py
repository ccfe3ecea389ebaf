"""Python functions in Spark tasks: these packages' code is sent along, so executors need not have
them installed; and lake columns as the Spark schemas of their rows, and back.
"""

from __future__ import annotations

import copyreg
import dataclasses
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import SparkContext, cloudpickle
from pyspark.sql import types as T

import singer_spark
from singer_spark.core.lake_type import SCALARS, Array, Field, LakeType, Struct, parse_type
from singer_spark.engine.spark_settings import is_local, is_remote
from singer_spark.engine.spark_versions import (
    answer,
    collected,
    collected_rows,
    silence_accumulators,
)

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")
_SPARK: dict[str, T.DataType] = {
    name: getattr(T, f"{each.spark}Type")() for name, each in SCALARS.items()
}


def send_along(session: SparkSession, package: ModuleType) -> None:
    """Let tasks of the session call functions of this package, and of `singer_spark`."""
    _by_value(package)
    if not is_remote(session):
        _prepare(session.sparkContext)


def in_task(context: SparkContext, package: ModuleType, work: Callable[[], R]) -> R:
    """Run a package's function in a task; needs no session."""
    _by_value(package)
    _prepare(context)
    (found,) = collected(context.parallelize([0], 1).map(lambda _: work()))
    result: R
    (result,) = pickle.loads(found)
    return result


def in_remote_task(session: SparkSession, package: ModuleType, work: Callable[[], R]) -> R:
    """Run a package's function in a task of Spark Connect."""
    _by_value(package)

    def worked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(work())]})

    result: R = result_of(session.range(0, 1, 1, 1).mapInArrow(worked, "result binary"))
    return result


def result_of(rows: DataFrame) -> Any:
    """The pickled value that is the only row of a task's result."""
    (result,) = values(rows)
    return pickle.loads(result)


def values(rows: DataFrame) -> list[bytes]:
    """The values of a single column, all at once; one request on Spark Connect."""
    if is_remote(rows.sparkSession):
        table, _ = answer(rows)
        found: list[bytes] = table.column(0).to_pylist()
        return found
    # One row, or a slice on its way to standard output, whose size is bounded.
    with _no_warnings():
        return [row[0] for row in rows.collect()]


def small_values(rows: DataFrame) -> list[bytes]:
    """The values of a single column, like `values`, but safe in several threads at once."""
    if is_remote(rows.sparkSession):
        return values(rows)
    return [bytes(row.get(0)) for row in collected_rows(rows)]


def values_in_pieces(rows: DataFrame, pieces: int) -> Iterator[bytes]:
    """The values of a single column, one piece after another; executors keep the pieces on their
    disks.
    """
    found = rows.hint("rebalance", pieces).toLocalIterator()
    try:
        for row in found:
            yield row[0]
    finally:
        with _no_warnings():
            del found


@contextmanager
def _no_warnings() -> Iterator[None]:
    # PySpark leaves the sockets of its results to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def _by_value(package: ModuleType) -> None:
    for each in (package, singer_spark):
        # PySpark's copy of cloudpickle has no types.
        cloudpickle.register_pickle_by_value(each)  # type: ignore[no-untyped-call]


def _cached(function: Callable[[Any], Any], name: str) -> cached_property[Any]:
    made = cached_property(function)
    made.__set_name__(object, name)
    return made


# A cached property in a class that is sent along: Python 3.11's own has a lock.
copyreg.pickle(cached_property, lambda each: (_cached, (each.func, each.attrname)))
# Fields of a dataclass that is sent along: the cloudpickle of PySpark 3.5 creates another marker
# there, so the fields are not found.
_MARKER = type(dataclasses._FIELD)  # type: ignore[attr-defined]
copyreg.pickle(_MARKER, lambda each: (getattr, (dataclasses, each.name)))


def _prepare(context: SparkContext) -> None:
    conf = context.getConf()
    ours = sys.executable if is_local(conf.get("spark.master")) else "python3"
    context.pythonExec = str(
        conf.get("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", ours))
    )
    silence_accumulators(context)


def spark_columns(columns: Struct) -> T.StructType:
    """The columns of a table as a Spark schema."""
    return T.StructType([T.StructField(each.name, _spark_type(each.type)) for each in columns])


def columns_of_spark(columns: T.StructType) -> Struct:
    """The columns of a Spark schema."""
    return Struct(tuple(Field(each.name, _lake_type(each.dataType)) for each in columns.fields))


def _spark_type(kind: LakeType) -> T.DataType:
    if isinstance(kind, Struct):
        return spark_columns(kind)
    if isinstance(kind, Array):
        return T.ArrayType(_spark_type(kind.element))
    return (
        T.DecimalType(kind.precision, kind.scale) if kind.name == "decimal" else _SPARK[kind.name]
    )


def _lake_type(spark: T.DataType) -> LakeType:
    if isinstance(spark, T.StructType):
        return columns_of_spark(spark)
    if isinstance(spark, T.ArrayType):
        return Array(_lake_type(spark.elementType))
    return parse_type(spark.simpleString())
