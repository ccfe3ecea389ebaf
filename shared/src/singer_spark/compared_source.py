"""A tap's source, as `verify` compares it with a lake and `check` inspects it: the interface
between the two programs.

The target imports the tap's module by name, so neither package needs the other. The findings of
`check` have the same form for source and lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from singer_spark.core.lake_type import Struct

# How a row's text is made from those of its columns: see `Summing`.
SEPARATOR, NULL_TEXT = "|", "N"
# The hexadecimal digits of a SHA-256, counted from 1, that form the bucket's number, and the two
# halves of a checksum.
BUCKET_DIGITS, HALVES = (1, 4), ((1, 15), (17, 15))
MOST_BUCKETS = 16 ** BUCKET_DIGITS[1]
OK: Literal["ok"] = "ok"
NOTE: Literal["note"] = "note"
PROBLEM: Literal["problem"] = "problem"


@dataclass(frozen=True)
class Summing:
    """How both sides sum up their rows by buckets, so that equal rows can be recognised without
    sending them.

    The text of a row joins those of its columns: integers and decimals with all digits of their
    scale, dates and moments as SQL prints them, in UTC and without trailing zeros, a boolean as 1
    or 0, bytes in hexadecimal, a floating-point number's bits as an integer, a text after its
    length, and `NULL_TEXT`. Its checksum is the SHA-256 of that text, in two halves. Its bucket
    follows from the SHA-256 of the key's columns, or of the row if there is no key.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    buckets: int


@dataclass(frozen=True)
class Part:
    """The rows of some buckets."""

    summing: Summing
    buckets: tuple[int, ...]


class BucketSum(NamedTuple):
    """The sum of some rows of a bucket.

    Attributes:
        newer: Whether the lake need not have these rows.
        rows: Their number.
        high: The sum of the first halves of their checksums.
        low: That of the other halves.
    """

    bucket: int
    newer: bool
    rows: int
    high: int
    low: int


@dataclass(frozen=True)
class SourceRows:
    """The rows of one stream as the source has them now.

    Attributes:
        schema: The stream's JSON Schema, as the tap sends it.
        columns: Its columns, with the types that a target gives them.
        read: Reads a part of the rows, or all of them, as a run reads them, and returns what a
            function makes of each batch. The function receives the columns, and for each row
            whether it is firm: by the bookmark, it was sent as it is now. Other rows are sent by
            the next run, or left out by the tap, so the lake may have them in this or an older
            version, or not at all. It is called in several threads, and again if a slice must be
            read again.
        is_empty: Whether it has no rows at all.
        buckets: Number of buckets into which the rows should be summed up.
        unsummed: Why the database can't sum up these columns, naming those it can't; None: it can.
        sums: The sums of all rows, computed in the database; each bucket may have several.
        key_properties: Columns of the record's key; may be empty.
        replication_key: None if the stream is sent whole.
        watermark: The bookmark's value as text; None if there is none: then all rows are firm.

    `read`, `is_empty` and `sums` raise SourceError if the database refuses.
    """

    stream: str
    schema: Mapping[str, Any]
    columns: Struct
    read: Callable[
        [Part | None, Callable[[pa.RecordBatch, pa.Array], pa.RecordBatch]],
        Iterator[pa.RecordBatch],
    ]
    is_empty: Callable[[], bool]
    buckets: int
    unsummed: Callable[[Sequence[str]], str | None]
    sums: Callable[[Summing], list[BucketSum]]
    key_properties: tuple[str, ...]
    replication_key: str | None
    watermark: str | None


class ComparedSource(Protocol):
    """A tap's source; to be closed once everything is compared."""

    def streams(self) -> tuple[str, ...]:
        """Names of the selected streams; starts the JVM.

        Raises:
            SingerSparkError: the settings don't fit the database, or it can't be reached.
        """

    def opened(self, stream: str, state: Mapping[str, Any]) -> AbstractContextManager[SourceRows]:
        """The rows of a stream, in one snapshot where the database shares one, for as long as the
        context lasts.

        Raises:
            SourceError: the database refused.
            StateError: the stream's bookmark can't be used.
        """

    def close(self) -> None:
        """Close all connections."""


@dataclass(frozen=True)
class Finding:
    """One fact, for users.

    Attributes:
        about: What was examined, in a word.
        text: What was found, and what to do about it.
        outcome: Whether it is as it should be, worth knowing, or an obstacle to a run.
    """

    about: str
    text: str
    outcome: Literal["ok", "note", "problem"] = OK
