"""What a tap tells of its source to who compares it with a lake: the seam between the two programs in `verify`.

The target names the tap's module and imports it when it is asked to verify, so neither package needs the other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

R = TypeVar("R")
ROW, FIRM = "row", "firm"


class ReadAgainError(Exception):
    """The rows must be read anew: they are wider than was thought, and come fewer at a time from now on."""


@dataclass(frozen=True)
class SourceRows:
    """The rows of one stream as the source has them now.

    Attributes:
        stream: Its name.
        schema: The stream's JSON Schema, as the tap sends it.
        columns: Its columns, with the types that a target gives them.
        rows: Gives `ROW`, a struct of the columns, and `FIRM`: whether the row was sent as it is, by the bookmark.
            Other rows the next run sends, or the tap leaves out: they may be in the lake, in this or an older version,
            or not.
        key_properties: Columns of the record's key; may be empty.
        replication_key: None where the stream is sent whole.
        watermark: The bookmark's value as text; None where there is none: all rows are firm then.
        told: Turns what Spark reports of a failed job over `rows` into an error of the source, in one line, or into
            `ReadAgainError`.
    """

    stream: str
    schema: Mapping[str, Any]
    columns: StructType
    rows: Callable[[], DataFrame]
    key_properties: tuple[str, ...]
    replication_key: str | None
    watermark: str | None
    told: Callable[[], AbstractContextManager[None]]

    def read(self, use: Callable[[DataFrame], R]) -> R:
        """What is made of the rows, by whole jobs: they may be run again.

        Raises:
            SourceError: the database refused.
        """
        while True:
            with suppress(ReadAgainError), self.told():
                return use(self.rows())


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
