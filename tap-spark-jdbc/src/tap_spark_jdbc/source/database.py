"""The source of one run: driver, JVM, connections, and the Spark session, each opened when first
needed.

On one machine the JVM is all that is needed. On a cluster, or if the user wants it, rows are read
by a session, which is made in that JVM, and takes longer to make than queries for metadata and
bounds.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from singer_spark.engine.gateway import is_begun
from singer_spark.engine.kept_jvm import KEEPER
from singer_spark.engine.session import begin_jvm, get_context, get_gateway, get_session
from singer_spark.engine.spark_settings import (
    PARALLELISM,
    SparkOptions,
    is_local,
    local_cores,
    session_conf,
    tasks_at_once,
)
from singer_spark.store.storage import Storage
from tap_spark_jdbc.dialects.dialect import CONNECTORX
from tap_spark_jdbc.source.connection import Connection
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection, loaded_driver
from tap_spark_jdbc.source.jdbc_source import JdbcSource
from tap_spark_jdbc.source.libpq import ColumnarDatabase
from tap_spark_jdbc.source.libpq_connection import LibpqConnection
from tap_spark_jdbc.source.mariadb_connection import MariaDbConnection
from tap_spark_jdbc.source.open_connections import IdleConnections, ServerWatch
from tap_spark_jdbc.source.python_connection import PythonConnection, UnsuitableError
from tap_spark_jdbc.source.remote_connection import RemoteConnection
from tap_spark_jdbc.source.sqlite_connection import SqliteConnection
from tap_spark_jdbc.source.ssh_tunnel import SshTunnel
from tap_spark_jdbc.source.transaction_list import Oldest, TransactionList

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tap_spark_jdbc.config.settings import TapSettings

T = TypeVar("T")
logger = logging.getLogger("tap-spark-jdbc")
_CONNECTION_DRIVERS: dict[str, type[PythonConnection]] = {
    each.module: each for each in (LibpqConnection, MariaDbConnection, SqliteConnection)
}


@dataclass
class Database:
    """The database that a tap reads; each part is opened on first use.

    Attributes:
        moved_at: When rows last moved, by the monotonic clock.
    """

    settings: TapSettings
    _beside: Database | None = None
    moved_at: Callable[[], float] = lambda: 0.0
    _others: list[Database] = field(default_factory=list, init=False, repr=False)
    _starting: Lock = field(default_factory=Lock, init=False, repr=False)
    _made: dict[Any, Future[Any]] = field(default_factory=dict, init=False, repr=False)
    _transactions: TransactionList = field(default_factory=TransactionList, init=False, repr=False)
    _idle: IdleConnections = field(default_factory=IdleConnections, init=False, repr=False)
    _only_jdbc: bool = field(default=False, init=False, repr=False)
    _columnar: ColumnarDatabase = field(default_factory=ColumnarDatabase, init=False, repr=False)

    def beside(self) -> Database:
        """The same source in the same session, with its own connections; closed with this one."""
        other = Database(self.settings, self)
        other.source = self.source
        self._others.append(other)
        return other

    @property
    def columnar(self) -> ColumnarDatabase:
        """The columnar driver's database, for all slices of the run."""
        return self._root._columnar

    @property
    def idle_connections(self) -> IdleConnections:
        """The readers' connections that wait for another slice, for all slices of the run."""
        return self._root._idle

    @cached_property
    def source(self) -> JdbcSource:
        """Dialect, driver and address.

        If there is a tunnel, it is opened, and the address leads through it.
        """
        source = JdbcSource.of(self.settings)
        return source if self._tunnel is None else source.through(self._tunnel.local)

    @cached_property
    def _tunnel(self) -> SshTunnel | None:
        ssh = self.settings.ssh_tunnel
        return None if ssh is None else SshTunnel(ssh)

    def begin_jvm(self) -> None:
        """Start the JVM in the background, unless only rows may need it.

        ConfigurationError: no Java, or no driver.
        """
        if self.by_spark or not self._connection_driver:
            self._begin_jvm()

    def _begin_jvm(self) -> None:
        if not self.by_spark:
            # Each thread has a thread of its own in the JVM, in which settings of expressions are
            # kept.
            os.environ["PYSPARK_PIN_THREAD"] = "true"
        begin_jvm(self._options)

    def begin_session(self) -> None:
        """Start the session in the background, as rows are sure to be read by it."""
        self._begun(get_session)

    def begin_reader(self) -> None:
        """Start in the background what reads rows on one machine, as there are sure to be some: the
        JVM, or half a second of imports.
        """
        driver = self.source.dialect.columnar_driver
        if self.may_be_columnar and driver is not None:
            # ConnectorX is imported by processes of its own.
            modules = ("pyarrow", "pyarrow.compute", *(() if driver == CONNECTORX else (driver,)))
            Thread(target=_imported, args=modules, name="import", daemon=True).start()
        elif not self.by_spark:
            self._begin_jvm()

    @property
    def by_spark(self) -> bool:
        """Whether rows are read by a session; otherwise in this process and its JVM."""
        return self.settings.by_spark

    @property
    def spark(self) -> SparkSession:
        """The session; on this machine it knows the driver, although it may have run before."""
        session = self._begun(get_session).result()
        if not self.settings.spark.remote:
            loaded_driver(self.gateway, self.source.driver, self.source.jars)
        return session

    @property
    def context(self) -> SparkContext | None:
        """The context that runs tasks; None with Spark Connect."""
        return None if self.settings.spark.remote else self._begun(get_context).result()

    @property
    def n_jobs(self) -> int:
        """The number of slices rendered at the same time."""
        known = self.settings.n_jobs or local_cores(self._options)
        if known is None and not self.by_spark:
            known = int(self.settings.spark.conf.get(PARALLELISM, os.cpu_count() or 1))
        jobs, most = known or tasks_at_once(self.spark), self.settings.max_connections
        if most is None:
            return jobs
        return max(1, min(jobs, most - self.source.dialect.own_connections))

    @property
    def streams_at_once(self) -> int | None:
        """The most streams that may be begun at the same time, given the run's limit of
        connections.
        """
        most = self.settings.max_connections
        if most is None:
            return None
        return max(1, (most - self.n_jobs) // self.source.dialect.own_connections)

    @property
    def shares_disk(self) -> bool:
        """Whether executors write to the disk of this process."""
        return not self.settings.spark.remote and is_local(self.settings.spark.master)

    @cached_property
    def batch_storage(self) -> Storage | None:
        """The storage for batches; None if none are configured."""
        batches = self.settings.batch_config
        if batches is None or batches.root is None:
            return None
        return Storage(batches.root, self.settings.storage_options)

    @property
    def may_be_columnar(self) -> bool:
        """Whether the columnar driver may read streams, if it can read all of their columns."""
        batches, driver = self.settings.batch_config, self.source.dialect.columnar_driver
        # On a cluster, lines are rendered by its executors.
        fit = self.shares_disk if batches is None else batches.format == "parquet"
        fit = fit and not (driver == CONNECTORX and self.by_spark)
        return fit and driver is not None and self.settings.reader != "jdbc" and not self.only_spark

    @property
    def only_spark(self) -> bool:
        """Whether the user wants Spark's tasks on this machine, and no other reader."""
        return self.by_spark and self.shares_disk and self.settings.reader != "arrow"

    @cached_property
    def connection(self) -> Connection:
        """A connection for metadata and bounds; starts no session, and a JVM only if a driver needs
        it.
        """
        return self._connection(lasting=True)

    def another_connection(self) -> Connection:
        """One more connection; its user closes it."""
        return self._connection(lasting=False)

    def opened(self, source: JdbcSource, *, lasting: bool = False) -> Connection:
        """A connection to this source, not watched; its user closes it."""
        if driver := self._connection_driver:
            by_jdbc = partial(self._opened_by_jdbc, source, lasting=True)
            try:
                return driver(source, by_jdbc, lasting=lasting)
            except UnsuitableError as error:
                logger.debug("connecting by the JDBC driver: %s", error)
                self._root._only_jdbc = True
        return self._opened_by_jdbc(source, lasting=lasting)

    def _opened_by_jdbc(self, source: JdbcSource, *, lasting: bool) -> JdbcConnection:
        return JdbcConnection.open(self.gateway, source, lasting=lasting)

    @property
    def _connection_driver(self) -> type[PythonConnection] | None:
        """What asks instead of the JDBC driver; None: nothing may."""
        name = self.source.dialect.connection_driver
        if name is None or self._root._only_jdbc or find_spec(name) is None:
            return None
        driver = _CONNECTION_DRIVERS[name]
        return driver if driver.suits(self.source) else None

    @property
    def hides_transactions(self) -> bool:
        """Whether the user was refused the list of open transactions."""
        return self._root._transactions.hidden

    @cached_property
    def watch(self) -> ServerWatch | None:
        """The watch over all connections of the run; None if the database is no server, or another
        server queries it.
        """
        if self.settings.spark.remote or self.source.dialect.alive is None:
            return None
        limited = self.source.limited()
        return ServerWatch(
            lambda: JdbcConnection.open(self.gateway, limited), lambda: self.gateway, self.moved_at
        )

    @cached_property
    def snapshot_connection(self) -> Connection:
        """A connection that holds a snapshot for the others."""
        return self._connection(lasting=False)

    def _connection(self, *, lasting: bool) -> Connection:
        if self.settings.spark.remote:
            return RemoteConnection(self.spark, self.source)
        watch = self._root.watch
        if watch is not None:
            watch.start()
        connection = self.opened(self.source, lasting=lasting)
        if watch is not None:
            watch.add(connection)
        return connection

    def has_jvm(self) -> bool:
        """Whether there is a JVM, or one that is starting."""
        return is_begun()

    @property
    def gateway(self) -> Any:
        """Py4J's gateway to the JVM."""
        self._begin_jvm()
        return get_gateway(self._options)

    @cached_property
    def sql_conf(self) -> dict[str, str]:
        """The settings of a session that the values of rows depend on."""
        every = session_conf(self._options).items()
        conf = {name: value for name, value in every if name.startswith("spark.sql.")}
        return {**conf, "spark.sql.chunkBase64String.enabled": "false"}

    @property
    def _root(self) -> Database:
        return self if self._beside is None else self._beside._root

    def _begun(self, start: Callable[[SparkOptions], T]) -> Future[T]:
        """What `start` makes in a thread of its own, once for this database and those beside it."""
        root = self._root
        with root._starting:
            if start not in root._made:
                thread = ThreadPoolExecutor(1, thread_name_prefix=start.__name__)
                root._made[start] = thread.submit(lambda: start(root._options))
                thread.shutdown(wait=False)
            return root._made[start]

    @cached_property
    def _options(self) -> SparkOptions:
        spark = self.settings.spark
        if self.by_spark:
            # A session belongs to one run, so its JVM can't be kept for the next one.
            os.environ.pop(KEEPER, None)
        return SparkOptions(
            "tap-spark-jdbc",
            spark.master,
            spark.remote,
            dict(spark.conf),
            self.source.jars,
            # Spark's log would include the database's messages, which may quote values.
            log_level="OFF" if self.source.hides_values else None,
            rows=not self.may_be_columnar,
            only_jvm=not self.by_spark,
        )

    def oldest_transaction(self) -> Oldest | None:
        """The oldest transaction that may still write rows; None: the database or the user's rights
        don't show it.
        """
        return self._root._transactions.oldest(self.connection, self.source)

    def connect(self) -> None:
        """Open the connections for reading a stream.

        Raises SourceError if the server refuses, or can't be reached.
        """
        _ = self.connection
        if self.source.dialect.shares_snapshots:
            _ = self.snapshot_connection

    def close_snapshot(self) -> None:
        """Close `snapshot_connection`, which ends the snapshot; the next use opens another."""
        held: Connection | None = self.__dict__.pop("snapshot_connection", None)
        if held is not None:
            held.close()

    def disconnect(self) -> None:
        """Close its connections; the next use opens others."""
        self.close_snapshot()
        self.idle_connections.close()
        held: Connection | None = self.__dict__.pop("connection", None)
        if held is not None:
            held.close()

    def close(self) -> None:
        """Close all connections, including those of `beside`; the session stays open."""
        for each in (self, *self._others):
            each.disconnect()
        self.columnar.close()
        if watch := self.__dict__.pop("watch", None):
            watch.stop()
        tunnel = self.__dict__.pop("_tunnel", None)
        if tunnel is not None:
            self.__dict__.pop("source", None)
            tunnel.close()


def _imported(*modules: str) -> None:
    # A missing module is named when a stream should be read by it.
    with suppress(ImportError):
        for name in modules:
            import_module(name)
