"""The source of one run: driver, Spark session and connection, opened when first needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.s3_connector import s3a_jars
from singer_spark.spark_session import SparkOptions, get_session
from singer_spark.storage import Storage
from tap_spark_jdbc.jdbc_connection import JdbcConnection, JdbcSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark_jdbc.settings import TapSettings

# Spool files live for seconds: no checksum files beside them, and few system calls.
SPOOL_CONF = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "io.file.buffer.size": "262144"}

# Of batches: level 3 takes a sixth more of all their time, and spares less than a hundredth of the space.
BATCH_CONF = {"parquet.compression.codec.zstd.level": "1"}


@dataclass
class Database:
    """What a tap reads from; each part is there from its first use."""

    settings: TapSettings
    _others: list[Database] = field(default_factory=list, init=False, repr=False)

    def beside(self) -> Database:
        """The same source in the same session, over connections of its own; closed with this one."""
        other = Database(self.settings)
        other.source, other.spark = self.source, self.spark
        self._others.append(other)
        return other

    @cached_property
    def source(self) -> JdbcSource:
        """Dialect, driver and address."""
        return JdbcSource.of(self.settings)

    @cached_property
    def spark(self) -> SparkSession:
        """The session; starts the JVM."""
        spark, batches = self.settings.spark, self.batch_storage
        on_s3 = batches is not None and batches.on_s3
        return get_session(
            SparkOptions(
                "tap-spark-jdbc",
                spark.master,
                spark.remote,
                dict(spark.conf),
                (*self.source.jars, *(s3a_jars(spark.conf) if on_s3 else ())),
                hadoop_conf={**SPOOL_CONF, **({**BATCH_CONF, **batches.hadoop_conf()} if batches is not None else {})},
            )
        )

    @property
    def n_jobs(self) -> int:
        """Slices that are rendered at the same time."""
        return self.settings.n_jobs or self.spark.sparkContext.defaultParallelism

    @cached_property
    def batch_storage(self) -> Storage | None:
        """Where batches go; None where none are asked for."""
        batches = self.settings.batch_config
        return None if batches is None else Storage(batches.root, self.settings.storage_options)

    @cached_property
    def connection(self) -> JdbcConnection:
        """A connection for metadata and bounds."""
        return JdbcConnection.open(self.spark, self.source, lasting=True)

    @cached_property
    def snapshot_connection(self) -> JdbcConnection:
        """A connection that holds a snapshot for the others."""
        return JdbcConnection.open(self.spark, self.source)

    def connect(self) -> None:
        """Opens what a stream is read by.

        Raises:
            SourceError: the server refused, or can't be reached.
        """
        _ = self.connection
        if self.source.dialect.shares_snapshots:
            _ = self.snapshot_connection

    def close_snapshot(self) -> None:
        """Ends what `snapshot_connection` holds; the next use of it is another connection."""
        held: JdbcConnection | None = self.__dict__.pop("snapshot_connection", None)
        if held is not None:
            held.close()

    def disconnect(self) -> None:
        """Closes its connections; the next use opens others."""
        self.close_snapshot()
        held: JdbcConnection | None = self.__dict__.pop("connection", None)
        if held is not None:
            held.close()

    def close(self) -> None:
        """Closes all connections, those beside too; the session stays for whoever else uses it."""
        for each in (self, *self._others):
            each.disconnect()
