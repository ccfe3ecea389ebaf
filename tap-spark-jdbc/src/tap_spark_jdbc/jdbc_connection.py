"""A JDBC connection inside Spark's JVM, for metadata and small results: the one file that touches `_jvm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession
    from tap_spark_jdbc.dialects.dialect import Dialect
    from tap_spark_jdbc.settings import TapSettings

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class JdbcSource:
    """How the database is reached.

    Attributes:
        url: JDBC URL, as the driver wants it.
        dialect: Its kind.
        driver: The driver's class.
        jars: Local paths of the driver's jars, for `SparkOptions.jars`.
        user: If any.
        password: If any; registered as a secret.
    """

    url: str
    dialect: Dialect
    driver: str
    jars: tuple[str, ...]
    user: str | None = None
    password: str | None = None

    @classmethod
    def of(cls, settings: TapSettings) -> JdbcSource:
        """Finds dialect and driver of the settings' URL (the first time by fetching the driver); no JVM needed.

        Raises:
            ConfigurationError: no dialect, no driver, or it can't be had.
        """
        raise NotImplementedError

    def reader_options(self) -> dict[str, str]:
        """Options for `spark.read.format("jdbc")`: url, driver, user, password, properties, sessionInitStatement."""
        raise NotImplementedError


class JdbcConnection:
    """A java.sql.Connection; a context manager."""

    @classmethod
    def open(cls, spark: SparkSession, source: JdbcSource) -> JdbcConnection:
        """Connects.

        Raises:
            SourceError: one line: unreachable, unknown database, wrong password, …
        """
        raise NotImplementedError

    def rows(self, sql: str) -> list[Row]:
        """All rows of a small result (MAX, COUNT, bounds), each value by `getString`.

        Raises:
            SourceError: the database refused.
        """
        raise NotImplementedError

    def bulk_rows(self, sql: str) -> list[Row]:
        """All rows of a result of any size, moved to Python in one call."""
        raise NotImplementedError

    def metadata(self, method: str, *arguments: Any) -> list[dict[str, str | None]]:
        """A whole result of `DatabaseMetaData.<method>`, by column name in upper case, in one call."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connection; never raises."""
        raise NotImplementedError

    def __enter__(self) -> JdbcConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
