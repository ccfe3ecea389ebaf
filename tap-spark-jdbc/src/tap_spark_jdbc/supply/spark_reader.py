"""Reading the slices of one stream over JDBC by Spark's tasks: on this machine, on a cluster, on
Spark Connect.
"""

from __future__ import annotations

import re
import uuid
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import types as T

import tap_spark_jdbc
from singer_spark.engine.python_tasks import result_of, send_along, values, values_in_pieces
from singer_spark.engine.spark_settings import check_pandas
from singer_spark.errors import DisturbedError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.supply.columnar_query import Outcome
from tap_spark_jdbc.supply.jdbc_reader import JdbcReader, ReadColumns, pickled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.source.jdbc_source import JdbcSource
    from tap_spark_jdbc.supply.jdbc_reader import Take, Work

R = TypeVar("R")
# A slice too large for one answer comes in as many pieces as its size requires, up to this number.
PIECES = 1024
# The size of a piece as executors keep it, compressed; its rows must fit into one answer.
PIECE_BYTES = "8MB"
_ATTEMPT = b"attempt"
_TOO_LARGE = re.compile(r"spark\.driver\.maxResultSize|ExecutorLostFailure")


class SparkReader(JdbcReader):
    """Reads each slice in a Spark job of one task.

    ConfigurationError: the session can't run Python in it.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        check_pandas("tap-spark-jdbc", "reading")
        super().__init__(*arguments, **named)

    def work(
        self, each: Slice[Point], work: Work[R], location: str, fetch_size: int
    ) -> tuple[Outcome, R]:
        """As `JdbcReader.work`, but the task does the work, and no row leaves it."""
        with self._errors(location):
            rows = self._rows(each, self._bounded(fetch_size), fetch_size)
            fields, found = result_of(
                rows.mapInArrow(partial(pickled, self.rows, work), _binary("result"))
            )
        return self._written(Outcome(**fields), location), found

    def _send(
        self,
        each: Slice[Point],
        source: JdbcSource,
        take: Take,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> None:
        rows = self._rows(each, source, fetch_size)
        streams = (rows.limit(limit) if limit else rows).mapInArrow(_streams, _binary("stream"))
        if bounded:
            try:
                found: Iterable[bytes] = values(streams)
            # The classes of such errors differ between a session here and one of Spark Connect.
            except Exception as error:
                if not _TOO_LARGE.search(str(error)):
                    raise
                bounded = False
        if not bounded:
            streams.sparkSession.conf.set(
                "spark.sql.adaptive.advisoryPartitionSizeInBytes", PIECE_BYTES
            )
            found = values_in_pieces(streams, PIECES)
        attempts = set()
        for stream in found:
            with pa.ipc.open_stream(pa.py_buffer(stream)) as batches:
                attempts.add(batches.schema.metadata[_ATTEMPT])
                if len(attempts) > 1:
                    raise DisturbedError(
                        TapCode.CHANGED_WHILE_READ,
                        f"stream {self.sql.plan.stream}: an executor was lost while its rows were "
                        "fetched, and a second reading may contain other rows: run it again",
                    )
                for batch in batches:
                    take(batch.replace_schema_metadata(None))

    def _rows(self, each: Slice[Point], source: JdbcSource, fetch_size: int) -> DataFrame:
        """The rows of a slice, as `JdbcRows` has them."""
        session = self._database.spark
        send_along(session, tap_spark_jdbc)
        schema = ReadColumns(self.sql, self._source).schema
        return source.relation(session, self.sql.relation(each), schema, fetch_size).selectExpr(
            *self._selected
        )

    @cached_property
    def _selected(self) -> list[str]:
        """This is the same for all slices, because Spark compiles each distinct text."""
        return self.rows.selected(self.sql, self._source)


def _binary(name: str) -> T.StructType:
    return T.StructType([T.StructField(name, T.BinaryType())])


def _streams(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as an Arrow stream in a row of its own, marked with its reading."""
    attempt = {_ATTEMPT: uuid.uuid4().bytes}
    for batch in batches:
        buffer, marked = pa.BufferOutputStream(), batch.replace_schema_metadata(attempt)
        with pa.ipc.new_stream(buffer, marked.schema) as stream:
            stream.write_batch(marked)
        yield pa.RecordBatch.from_arrays(
            [pa.array([buffer.getvalue().to_pybytes()], pa.binary())], ["stream"]
        )
