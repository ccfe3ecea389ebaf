"""The source of one run: driver, Spark session and connection, opened when first needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.cluster import is_remote, tasks_at_once
from singer_spark.spark_session import SparkOptions, get_session
from tap_spark_jdbc.jdbc_connection import JdbcConnection, JdbcSource
from tap_spark_jdbc.remote_connection import RemoteConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark_jdbc.settings import TapSettings

# Spool files live for seconds: no checksum files beside them, and few system calls.
SPOOL_CONF = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "io.file.buffer.size": "262144"}


@dataclass
class Database:
    """What a tap reads from; each part is there from its first use."""

    settings: TapSettings

    @cached_property
    def source(self) -> JdbcSource:
        """Dialect, driver and address."""
        return JdbcSource.of(self.settings)

    @cached_property
    def spark(self) -> SparkSession:
        """The session; starts the JVM."""
        spark = self.settings.spark
        return get_session(
            SparkOptions(
                "tap-spark-jdbc",
                spark.master,
                spark.remote,
                dict(spark.conf),
                self.source.jars,
                hadoop_conf={} if spark.remote else SPOOL_CONF,
            )
        )

    @property
    def slices_at_once(self) -> int:
        """How many slices are read side by side."""
        return self.settings.n_jobs or tasks_at_once(self.spark)

    @cached_property
    def connection(self) -> JdbcConnection:
        """A connection for metadata and bounds."""
        return self._connection(lasting=True)

    @cached_property
    def snapshot_connection(self) -> JdbcConnection:
        """A connection that holds a snapshot for the others."""
        return self._connection(lasting=False)

    def _connection(self, *, lasting: bool) -> JdbcConnection:
        if is_remote(self.spark):
            return RemoteConnection(self.spark, self.source)
        return JdbcConnection.open(self.spark, self.source, lasting=lasting)

    def close_snapshot(self) -> None:
        """Ends what `snapshot_connection` holds; the next use of it is another connection."""
        held: JdbcConnection | None = self.__dict__.pop("snapshot_connection", None)
        if held is not None:
            held.close()

    def close(self) -> None:
        """Closes the connections; the session stays for whoever else uses it."""
        self.close_snapshot()
        if "connection" in self.__dict__:
            self.connection.close()
