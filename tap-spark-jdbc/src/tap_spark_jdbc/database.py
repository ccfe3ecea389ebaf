"""The source of one run: driver, JVM, connections, and the Spark session; each opened when first needed.

Questions to the database need the JVM alone. The session, which takes longer to make than they to be answered, is made
in that JVM for whoever reads rows.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from singer_spark.spark_session import SparkOptions, begin_jvm, get_gateway, get_session
from tap_spark_jdbc.jdbc_connection import JdbcConnection, JdbcSource

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

    def begin_jvm(self) -> None:
        """Starts the JVM in the background.

        Raises:
            ConfigurationError: there is no Java, or no driver.
        """
        begin_jvm(self._options)

    def begin_session(self) -> None:
        """Starts the session in the background, as rows are sure to be read."""
        self._session  # noqa: B018

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._session.result()

    @cached_property
    def connection(self) -> JdbcConnection:
        """A connection for metadata and bounds; starts the JVM and no session."""
        return JdbcConnection.open(self._gateway, self.source, lasting=True)

    @cached_property
    def snapshot_connection(self) -> JdbcConnection:
        """A connection that holds a snapshot for the others."""
        return JdbcConnection.open(self._gateway, self.source)

    @property
    def _gateway(self) -> Any:
        return get_gateway(self._options)

    @cached_property
    def _session(self) -> Future[SparkSession]:
        options, thread = self._options, ThreadPoolExecutor(1, thread_name_prefix="session")
        session = thread.submit(get_session, options)
        thread.shutdown(wait=False)
        return session

    @cached_property
    def _options(self) -> SparkOptions:
        spark = self.settings.spark
        return SparkOptions(
            "tap-spark-jdbc",
            spark.master,
            spark.remote,
            dict(spark.conf),
            self.source.jars,
            hadoop_conf=SPOOL_CONF,
        )

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
