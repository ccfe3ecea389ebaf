"""SQL for checksums of rows, summed up in the database by buckets: see
`singer_spark.compared_source.Summing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.compared_source import (
    BUCKET_DIGITS,
    HALVES,
    NULL_TEXT,
    SEPARATOR,
    BucketSum,
    Summing,
)
from tap_spark_jdbc.plan.stream_sql import Point, RowBoundary, StreamSql

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.dialect import Checksums
    from tap_spark_jdbc.dialects.tables import Column
    from tap_spark_jdbc.plan.slices import Slice

# PostgreSQL accepts a hundred arguments.
_ARGUMENTS = 50


def unsummed(sql: StreamSql, names: Sequence[str]) -> str | None:
    """Why these columns can't be summed up, naming those without a text of their values; None: they
    can.
    """
    if sql.dialect.checksums is None:
        return f"{sql.dialect.name} is not known to make checksums of rows"
    columns = sql.plan.sent_columns
    lacking = [name for name in names if _template(columns[name], sql.dialect.checksums) is None]
    return f"{', '.join(lacking)} can't be summed up there" if lacking else None


@dataclass(frozen=True)
class ChecksumSql:
    """SQL for one stream's checksums; each compared column must have a text of its values."""

    sql: StreamSql
    summing: Summing

    def sums(self, each: Slice[Point]) -> str:
        """The statement for a slice's sums, whose columns are those of `BucketSum`."""
        quote, hashed = self.sql.dialect.quote, [self._number("row_hash", *half) for half in HALVES]
        bucket, newer, rows, *names = map(quote, BucketSum._fields)
        sums = (f"SUM({half}) AS {name}" for half, name in zip(hashed, names, strict=True))
        older = f"{int(RowBoundary.NONE)}, {int(RowBoundary.BOOKMARK)}"
        is_newer = f"CASE WHEN {self.sql.boundary()} IN ({older}) THEN 0 ELSE 1 END"
        found = (
            f"SELECT {self._bucket()} AS {bucket}, {is_newer} AS {newer}, "
            f"{self._hash(self.summing.columns)} AS row_hash {self.sql.source} "
            f"AND {self.sql.condition(each)}{self._templates.once}"
        )
        groups = f"{bucket}, {newer}"
        return (
            f"SELECT {groups}, COUNT(*) AS {rows}, {', '.join(sums)} FROM ({found}) r GROUP BY "
            f"{groups}"
        )

    def condition(self, buckets: Iterable[int]) -> str:
        """The condition that a row is in one of these buckets."""
        return f"{self._bucket()} IN ({', '.join(map(str, buckets))})"

    def text(self, column: Column) -> str:
        """SQL of a value's text within the text of its row."""
        template = _template(column, self._templates)
        assert template is not None
        return (
            f"COALESCE({template.replace('{c}', self.sql.dialect.quote(column.name))}, "
            f"'{NULL_TEXT}')"
        )

    @property
    def _templates(self) -> Checksums:
        found = self.sql.dialect.checksums
        assert found is not None
        return found

    def _bucket(self) -> str:
        hashed = self._hash(self.summing.keys or self.summing.columns)
        return f"({self._number(hashed, *BUCKET_DIGITS)} % {self.summing.buckets})"

    def _number(self, hashed: str, start: int, digits: int) -> str:
        part = f"SUBSTR({hashed}, {start}, {digits})"
        return self._templates.number.replace("{bits}", str(4 * digits)).replace("{h}", part)

    def _hash(self, names: Sequence[str]) -> str:
        columns = self.sql.plan.sent_columns
        return self._templates.sha256.replace(
            "{t}", _joined([self.text(columns[name]) for name in names])
        )


def _template(column: Column, checksums: Checksums) -> str | None:
    """SQL over `{c}` of a value's text, NULL for NULL; None: there is none."""
    reading = column.reading
    if column.made_mask is not None:
        return None
    if reading.read_as != "STRING" or reading.becomes != "{c}":
        return reading.checked
    text = checksums.text.replace("{s}", reading.select)
    return f"CASE WHEN {reading.select} IS NOT NULL THEN {text} END"


def _joined(texts: Sequence[str]) -> str:
    """The texts with the separator between each two."""
    if len(texts) == 1:
        return texts[0]
    some = (texts[first : first + _ARGUMENTS] for first in range(0, len(texts), _ARGUMENTS))
    return _joined([f"CONCAT_WS('{SEPARATOR}', {', '.join(each)})" for each in some])
