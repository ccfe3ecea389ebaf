"""The result of a query on a Spark Connect server by one request: PySpark's `collect` and `toArrow` make two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def answer(frame: Any) -> tuple[pa.Table, StructType]:
    """All rows, and their schema; a JDBC relation costs a connection to the database for each request."""
    client = frame.sparkSession.client
    table, schema, _ = client.to_table(frame._plan.to_proto(client), frame._plan.observations)
    return table, frame.schema if schema is None else schema
