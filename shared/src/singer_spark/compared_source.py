"""A tap's source as `verify` compares it with a lake: the interface between the two programs.

The target imports the tap's module by name when it verifies, so neither package needs the other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from singer_spark.singer.lake_type import Struct

R = TypeVar("R")
ROW, FIRM = "row", "firm"
# The columns of `SourceRows.sums`.
BUCKET, NEWER, ROWS, HIGH, LOW = "bucket", "newer", "rows", "high", "low"
# How a row's text is made from those of its columns: see `Summing`.
SEPARATOR, NULL_TEXT = "|", "N"
# The hexadecimal digits of a SHA-256, counted from 1, that form the bucket's number, and the two halves of a checksum.
BUCKET_DIGITS, HALVES = (1, 4), ((1, 15), (17, 15))
MOST_BUCKETS = 16 ** BUCKET_DIGITS[1]


class ReadAgainError(Exception):
    """The rows must be read again: they are wider than expected, and are fetched fewer at a time from now on."""


@dataclass(frozen=True)
class Summing:
    """How both sides sum up their rows by buckets, so that equal rows can be recognised without sending them.

    The text of a row joins those of its columns: integers and decimals with all digits of their scale, dates and
    moments as SQL prints them, in UTC and without trailing zeros, a boolean as 1 or 0, bytes in hexadecimal, a
    floating-point number's bits as an integer, a text after its length, and `NULL_TEXT`. Its checksum is the SHA-256
    of that, in two halves; its bucket is by the SHA-256 of the key's columns, or of the row if there is no key.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    buckets: int


@dataclass(frozen=True)
class Part:
    """The rows of some buckets."""

    summing: Summing
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class SourceRows:
    """The rows of one stream as the source has them now.

    Attributes:
        schema: The stream's JSON Schema, as the tap sends it.
        columns: Its columns, with the types that a target gives them.
        rows: Makes, for a part or for all rows, `ROW`, a struct of the columns, and `FIRM`: whether the row was sent
            as it is, by the bookmark. Other rows are sent by the next run, or left out by the tap: they may be in the
            lake, in this or an older version, or not.
        buckets: Number of buckets into which the rows should be summed up.
        unsummed: Why the database can't sum up these columns, naming those it can't; None: it can.
        sums: Makes, by `BUCKET` and `NEWER` (the lake need not have such rows), the number of `ROWS`, and the sums of
            the checksums' halves, `HIGH` and `LOW`, computed in the database.
        key_properties: Columns of the record's key; may be empty.
        replication_key: None if the stream is sent whole.
        watermark: The bookmark's value as text; None if there is none: then all rows are firm.
        source_errors: Wraps a Spark job over `rows` and turns its failure into an error of the source, in one line, or
            into `ReadAgainError`.
    """

    stream: str
    schema: Mapping[str, Any]
    columns: Struct
    rows: Callable[[Part | None], DataFrame]
    buckets: int
    unsummed: Callable[[Sequence[str]], str | None]
    sums: Callable[[Summing], DataFrame]
    key_properties: tuple[str, ...]
    replication_key: str | None
    watermark: str | None
    source_errors: Callable[[], AbstractContextManager[None]]

    def read(self, use: Callable[[DataFrame], R], part: Part | None = None) -> R:
        """Apply `use` to the rows, or a part of them; its jobs may be run again.

        Raises:
            SourceError: the database refused.
        """
        while True:
            with suppress(ReadAgainError), self.source_errors():
                return use(self.rows(part))


class ComparedSource(Protocol):
    """A tap's source; to be closed once everything is compared."""

    @property
    def jars(self) -> tuple[str, ...]:
        """Local paths of jars that the session needs."""

    def streams(self) -> tuple[str, ...]:
        """Names of the selected streams; starts the JVM.

        Raises:
            SingerSparkError: the settings don't fit the database, or it can't be reached.
        """

    def opened(
        self, stream: str, state: Mapping[str, Any], session: SparkSession
    ) -> AbstractContextManager[SourceRows]:
        """The rows of a stream, in one snapshot where the database shares one, for as long as the context lasts.

        Raises:
            SourceError: the database refused.
            StateError: the stream's bookmark can't be used.
        """

    def close(self) -> None:
        """Close all connections."""
