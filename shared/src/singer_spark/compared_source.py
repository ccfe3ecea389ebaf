"""What a tap tells of its source to who compares it with a lake: the seam between the two programs in `verify`.

The target names the tap's module and imports it when it is asked to verify, so neither package needs the other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

R = TypeVar("R")
ROW, FIRM = "row", "firm"
# The columns of `SourceRows.sums`.
BUCKET, NEWER, ROWS, HIGH, LOW = "bucket", "newer", "rows", "high", "low"
# How a row's text is made of those of its columns: `Summing`.
SEPARATOR, NULL_TEXT = "|", "N"
# The hexadecimal digits of an MD5, counted from 1, that make the bucket's number, and the two halves of a checksum.
BUCKET_DIGITS, HALVES = (1, 4), ((1, 15), (17, 15))
MOST_BUCKETS = 16 ** BUCKET_DIGITS[1]


class ReadAgainError(Exception):
    """The rows must be read anew: they are wider than was thought, and come fewer at a time from now on."""


@dataclass(frozen=True)
class Summing:
    """How both sides sum up their rows by buckets, so that a source can tell what is alike without sending it.

    The text of a row joins those of its columns: integers and decimals with all digits of their scale, dates and
    moments as SQL prints them, in UTC and without zeros at the end, a boolean as 1 or 0, bytes in hexadecimal, of a
    floating number its bits as an integer, a text behind its length, and `NULL_TEXT`. Its checksum is the MD5 of that,
    in two halves; its bucket is by the MD5 of the key's columns, or of the row where there is no key.

    Attributes:
        columns: The columns that count.
        keys: Those of the key.
        buckets: How many there are.
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
        stream: Its name.
        schema: The stream's JSON Schema, as the tap sends it.
        columns: Its columns, with the types that a target gives them.
        rows: Gives, of a part or of all rows, `ROW`, a struct of the columns, and `FIRM`: whether the row was sent as
            it is, by the bookmark. Other rows the next run sends, or the tap leaves out: they may be in the lake, in
            this or an older version, or not.
        buckets: Into how many the rows should be summed up.
        unsummed: Of these columns the ones that the database can't sum up, or what it lacks for any; None: it can.
        sums: Gives, by `BUCKET` and `NEWER` (the lake need not have such rows), the number of `ROWS`, and the sums of
            the checksums' halves, `HIGH` and `LOW`, made in the database.
        key_properties: Columns of the record's key; may be empty.
        replication_key: None where the stream is sent whole.
        watermark: The bookmark's value as text; None where there is none: all rows are firm then.
        told: Turns what Spark reports of a failed job over `rows` into an error of the source, in one line, or into
            `ReadAgainError`.
    """

    stream: str
    schema: Mapping[str, Any]
    columns: StructType
    rows: Callable[[Part | None], DataFrame]
    buckets: int
    unsummed: Callable[[Sequence[str]], str | None]
    sums: Callable[[Summing], DataFrame]
    key_properties: tuple[str, ...]
    replication_key: str | None
    watermark: str | None
    told: Callable[[], AbstractContextManager[None]]

    def read(self, use: Callable[[DataFrame], R], part: Part | None = None) -> R:
        """What is made of the rows, or a part of them, by whole jobs: they may be run again.

        Raises:
            SourceError: the database refused.
        """
        while True:
            with suppress(ReadAgainError), self.told():
                return use(self.rows(part))


class ComparedSource(Protocol):
    """A tap's source; it is closed when all is compared."""

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
        """Closes all connections."""
