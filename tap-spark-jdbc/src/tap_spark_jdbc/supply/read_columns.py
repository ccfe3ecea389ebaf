"""Spark SQL of a stream's columns: how they are read, and what they become. This module only builds
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import FLOATING_TYPES, Array, LakeType
from singer_spark.core.schema_mapping import stream_columns
from singer_spark.engine.spark_versions import IS_UTF8, in_this_version
from tap_spark_jdbc.dialects.type_rules import complaint_of_bytes, spark_string

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.tables import Column
    from tap_spark_jdbc.plan.stream_sql import StreamSql
    from tap_spark_jdbc.source.jdbc_source import JdbcSource


@dataclass(frozen=True)
class ReadColumns:
    """The columns of one stream, under the aliases of its SQL."""

    sql: StreamSql
    source: JdbcSource

    @property
    def schema(self) -> str:
        """The columns that are read, with `boundary`, for `customSchema`."""
        text = "BINARY" if self.source.text_as_bytes else "STRING"
        read_types = ((alias, column.reading.read_as) for alias, column in self.sql.aliased)
        columns = [
            f"{alias} {text if read_as == 'STRING' else read_as}" for alias, read_as in read_types
        ]
        marks = self.sql.dialect.marks
        return ", ".join([*columns, f"boundary {'INT' if marks is None else marks.read_as}"])

    @property
    def has_masks(self) -> bool:
        """Whether a column is masked as it is read."""
        return any(column.made_mask for _, column in self.sql.aliased)

    def lake_values(self) -> list[str]:
        """Each column's value, masked, with the type that a target gives it."""
        values = [
            self._masked(alias, each) or self._value(alias, each)
            for alias, each in self.sql.aliased
        ]
        kinds = stream_columns(self.sql.plan.schema, self.sql.plan.stream)
        return [_canonical(value, column.type) for value, column in zip(values, kinds, strict=True)]

    def _masked(self, alias: str, column: Column) -> str | None:
        mask = column.made_mask
        return None if mask is None else mask.spark_sql(self._value(alias, column))

    def _value(self, alias: str, column: Column) -> str:
        """A column's value, over the column as it is read."""
        reading = column.reading
        is_bytes = self.source.text_as_bytes and reading.read_as == "STRING"
        return in_this_version(reading.becomes).replace(
            "{c}", _text(alias, column) if is_bytes else alias
        )


def _text(alias: str, column: Column) -> str:
    """The text of bytes; an error that names the column if they are not UTF-8."""
    complaint = spark_string(complaint_of_bytes(column.name, column.native_type).rstrip(": "))
    text, is_utf8 = f"CAST({alias} AS STRING)", in_this_version(IS_UTF8).replace("{c}", alias)
    return f"IF({alias} IS NULL OR {is_utf8}, {text}, CAST(raise_error({complaint}) AS STRING))"


def _canonical(value: str, kind: LakeType) -> str:
    """A value of this type, with NaN in the one form it has when parsed from text."""
    cast = f"CAST({value} AS {kind})"
    if kind in FLOATING_TYPES:
        return f"nanvl({cast}, CAST('NaN' AS {kind}))"
    if isinstance(kind, Array) and kind.element in FLOATING_TYPES:
        return f"transform({cast}, x -> {_canonical('x', kind.element)})"
    return cast
