"""Rows of a JDBC query as Arrow batches, by Spark's own reader in a JVM without a Spark context.

The only module that calls Spark's private classes over Py4J; `spark_versions` lists them. Catalyst
evaluates the same expressions as in a session: it interprets them at first, and compiles them once
there are enough rows. Parsing and analysing them takes a second of a short run, so the result is
kept for the next run. The JVM writes the batches to a named pipe, which a thread of this process
reads meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, BinaryIO

from py4j.protocol import Py4JJavaError

from singer_spark.core.scratch import scratch_folder
from singer_spark.engine.spark_versions import (
    arrow_batches,
    rewriting_rules,
    rows_of_result,
    takes_jdbc_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 4 << 20
BATCH_ROWS = 1 << 20
# Compiling expressions takes as long as interpreting them for a few thousand rows.
INTERPRETED_ROWS = 2_000
KEPT_SECONDS = 30 * 86_400
# The format of the files of analysed expressions.
FORMAT_VERSION = 1
PIPE_BYTES = 1 << 20
# Linux's, which Python 3.11 does not name everywhere.
_SET_PIPE_SIZE = 1031
_FORWARD_ONLY, _READ_ONLY = 1003, 1007
_SQL = "org.apache.spark.sql."
_CATALYST = f"{_SQL}catalyst."


@dataclass(frozen=True)
class Query:
    """A query over an open connection.

    Attributes:
        connection: A `java.sql.Connection`.
        url: The JDBC URL, by which Spark knows the database.
        driver: The class of its driver.
        begin: A statement to run before; empty: none.
        limit: The most rows to read; 0: all.
    """

    connection: Any
    url: str
    driver: str
    sql: str
    fetch_size: int
    begin: str = ""
    limit: int = 0


@dataclass
class _Projection:
    """Functions from a row to a row, one after the other; used by one thread at a time.

    Attributes:
        read: The schema of the rows read.
        made: The schema of the rows made.
    """

    read: Any
    made: Any
    stages: list[Any]
    interpreted: list[Any]
    compiled: list[Any] | None = None


class RowConversion:
    """What a query's rows become: Spark SQL over its columns."""

    def __init__(
        self,
        gateway: Any,
        columns: str,
        values: str,
        conf: Mapping[str, str],
        *,
        kept: Path | None = None,
    ) -> None:
        """Nothing is parsed yet.

        Args:
            gateway: Py4J's.
            columns: The columns with the types that they are read as: `c0 STRING, c1 INT`.
            values: Expressions over them, as after SELECT.
            conf: Settings of a session that expressions depend on.
            kept: The folder of analysed expressions; None: these must not be written to a disk.
        """
        self._gateway = gateway
        self._columns = columns
        self._values = values
        self._conf = conf
        facts = (FORMAT_VERSION, version("pyspark"), columns, values, *sorted(conf.items()))
        self._kept = (
            None if kept is None else kept / f"{sha256(repr(facts).encode()).hexdigest()[:32]}.ser"
        )
        self._free: list[_Projection] = []
        self._analysing = Lock()

    def send(self, query: Query, take: Callable[[pa.RecordBatch], None]) -> None:
        """Run the query, and call `take` with each batch of its rows, in a thread.

        Errors of both are raised here, the JVM's as Py4J does.
        """
        self._spark.use_conf(self._conf)
        connection = query.connection
        self._spark.prepare(query)
        if query.begin:
            with closing(connection.prepareStatement(query.begin)) as statement:
                statement.execute()
        with closing(
            connection.prepareStatement(query.sql, _FORWARD_ONLY, _READ_ONLY)
        ) as statement:
            statement.setFetchSize(query.fetch_size)
            if query.limit:
                statement.setMaxRows(query.limit)
            with self._projection() as projection:
                rows = self._spark.rows(statement.executeQuery(), query.url, projection.read)
                with _Batches(take) as batches:
                    self._write(rows, projection, batches.path)

    def _write(self, rows: Any, projection: _Projection, path: Path) -> None:
        with closing(self._spark.file_output(path)) as output:
            if projection.compiled is None:
                first = _mapped(rows.take(INTERPRETED_ROWS), projection.interpreted)
                self._spark.write(first, projection.made, output)
                if not rows.hasNext():
                    return
                projection.compiled = [self._spark.compiled(stage) for stage in projection.stages]
            self._spark.write(_mapped(rows, projection.compiled), projection.made, output)

    @contextmanager
    def _projection(self) -> Iterator[_Projection]:
        """A projection for this thread alone: it overwrites the row that it made before."""
        try:
            projection = self._free.pop()
        except IndexError:
            read, made, *stages = self._analysed()
            projection = _Projection(
                read, made, stages, [self._spark.interpreted(stage) for stage in stages]
            )
        yield projection
        self._free.append(projection)

    def _analysed(self) -> list[Any]:
        """Schemas and expressions for one projection alone, because some expressions hold a value
        while they are evaluated.
        """
        with self._analysing:
            if self._kept is not None and self._kept.exists():
                try:
                    return self._spark.restored(self._kept)
                except Py4JJavaError:  # cut off, or of other classes
                    self._kept.unlink(missing_ok=True)
            analysed = self._spark.analysed(self._values, self._columns)
            if self._kept is not None:
                # This is only a cache: its folder may be read-only, its disk full, or another run
                # may be clearing it.
                with suppress(OSError, Py4JJavaError):
                    self._spark.keep(analysed, self._kept)
            return analysed

    @cached_property
    def _spark(self) -> _Spark:
        return _Spark.of(self._gateway)


class _Spark:
    """Spark's private classes."""

    _known: _Spark | None = None

    def __init__(self, gateway: Any) -> None:
        self.gateway = gateway
        self._classes: dict[str, Any] = {}
        self._conf = self._object(f"{_SQL}internal.SQLConf")
        self._compiler = self._object(f"{_CATALYST}expressions.UnsafeProjection")
        self._interpreter = self._object(f"{_CATALYST}expressions.InterpretedUnsafeProjection")
        self._converters = self._object(f"{_SQL}execution.arrow.ArrowConverters")
        self._jdbc = self._object(f"{_SQL}execution.datasources.jdbc.JdbcUtils")
        self._dialects = self._object(f"{_SQL}jdbc.JdbcDialects")
        self._map = self._object("scala.collection.immutable.Map")
        self._none = self._object("scala.None")

    @cached_property
    def _analyser(self) -> Any:
        """An analyser that knows Spark's functions, and no table."""
        jvm, spark = self.gateway.jvm, self.gateway.jvm.org.apache.spark
        catalyst = spark.sql.catalyst
        tables = catalyst.catalog.InMemoryCatalog(
            spark.SparkConf(False), jvm.org.apache.hadoop.conf.Configuration(False)
        )
        functions = self._object(f"{_CATALYST}analysis.FunctionRegistry").builtin()
        return catalyst.analysis.Analyzer(catalyst.catalog.SessionCatalog(tables, functions))

    @classmethod
    def of(cls, gateway: Any) -> _Spark:
        """Those of this gateway's JVM."""
        known = cls._known
        if known is None or known.gateway is not gateway:
            known = cls._known = cls(gateway)
        return known

    def analysed(self, values: str, columns: str) -> list[Any]:
        """The schemas of columns and of values over them, and their expressions, ready to evaluate.

        If there are several lists of expressions, each is evaluated over the one before.
        """
        schema = self.gateway.jvm.org.apache.spark.sql.types.StructType.fromDDL(columns)
        attributes = self._object(f"{_CATALYST}types.DataTypeUtils").toAttributes(schema)
        relation = self._object(f"{_CATALYST}plans.logical.LocalRelation").apply(attributes)
        children = getattr(self._object("scala.collection.immutable.Nil"), "$colon$colon")(relation)
        parsed = self._object(f"{_CATALYST}parser.CatalystSqlParser").parsePlan(f"SELECT {values}")
        plan = self._analyser.execute(parsed.withNewChildren(children))
        self._analyser.checkAnalysis(plan)
        for rule in rewriting_rules():
            plan = self._object(f"{_CATALYST}optimizer.{rule}").apply(plan)
        made, stages = plan.schema(), []
        while str(plan.nodeName()) == "Project":
            stages.append(self._bound(plan.projectList(), plan.child().output()))
            plan = plan.child()
        return [schema, made, *stages[::-1]]

    def _bound(self, expressions: Any, attributes: Any) -> Any:
        columns = self._object(f"{_CATALYST}expressions.package").AttributeSeq(attributes)
        return self._object(f"{_CATALYST}expressions.BindReferences").bindReferences(
            expressions, columns
        )

    def keep(self, analysed: list[Any], path: Path) -> None:
        """Write what was analysed to a file, and remove files that have not been used for long."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{uuid.uuid4().hex}")
        java = self.gateway.jvm.java
        objects = java.util.ArrayList()
        for each in analysed:
            objects.add(each)
        with closing(java.io.ObjectOutputStream(java.io.FileOutputStream(str(draft)))) as output:
            output.writeObject(objects)
        draft.replace(path)
        for each in path.parent.iterdir():
            if time.time() - each.stat().st_mtime > KEPT_SECONDS:
                each.unlink(missing_ok=True)

    def restored(self, path: Path) -> list[Any]:
        """Read what was written to a file; raises Py4J's error if it can't be read."""
        path.touch()
        opened = self._class("java.io.FileInputStream")(str(path))
        with closing(self._class("java.io.ObjectInputStream")(opened)) as source:
            objects = source.readObject()
            # By index: Py4J ends an iteration with an exception of Java's, and PySpark compares
            # each with a dozen classes, which it looks up by name.
            return [objects.get(index) for index in range(objects.size())]

    def interpreted(self, bound: Any) -> Any:
        """A projection that is ready at once, and slow."""
        return self._interpreter.createProjection(bound)

    def compiled(self, bound: Any) -> Any:
        """A projection in bytecode."""
        return self._compiler.create(bound)

    def prepare(self, query: Query) -> None:
        """Prepare the connection for reading few rows at a time, where the database needs that."""
        options = self._map.empty().updated("fetchsize", str(query.fetch_size))
        if takes_jdbc_options():
            options = (
                options.updated("url", query.url)
                .updated("driver", query.driver)
                .updated("dbtable", "its")
            )
            options = self._class(f"{_SQL}execution.datasources.jdbc.JDBCOptions")(options)
        self._dialects.get(query.url).beforeFetch(query.connection, options)

    def rows(self, result: Any, url: str, schema: Any) -> Any:
        """A Scala iterator of a result's rows."""
        metrics = self._class("org.apache.spark.executor.InputMetrics")()
        return rows_of_result(
            self._jdbc, result, self._dialects.get(url), schema, metrics, self._none
        )

    def write(self, rows: Any, schema: Any, output: Any) -> None:
        """Write the rows, each batch as an Arrow stream after its length."""
        batches = arrow_batches(self._converters, rows, schema, BATCH_ROWS, BATCH_BYTES)
        with closing(batches):
            self._class("org.apache.spark.api.python.PythonRDD").writeIteratorToStream(
                batches, output
            )

    def file_output(self, path: Path) -> Any:
        """A file to write to."""
        return self._class("java.io.DataOutputStream")(
            self._class("java.io.FileOutputStream")(str(path))
        )

    def use_conf(self, conf: Mapping[str, str]) -> None:
        """Set the conf of this thread, which Py4J gives a thread of its own in the JVM."""
        properties = self._class("java.util.Properties")()
        properties.putAll(dict(conf))
        self._conf.get().setConf(properties)

    def _class(self, name: str) -> Any:
        """A class, looked up once: Py4J looks for each part of its name on the class path."""
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = reduce(getattr, name.split("."), self.gateway.jvm)
        return found

    def _object(self, name: str) -> Any:
        loader = self.gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        found = self.gateway.jvm.java.lang.Class.forName(f"{name}$", True, loader)
        return found.getField("MODULE$").get(None)


class _Batches:
    """A named pipe whose batches a thread takes, while the context lasts."""

    def __init__(self, take: Callable[[pa.RecordBatch], None]) -> None:
        self._take = take
        self.path = scratch_folder() / f"rows-{uuid.uuid4().hex}"
        self._failure: BaseException | None = None

    def __enter__(self) -> _Batches:
        os.mkfifo(self.path, 0o600)
        pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        # While this is open, the reader waits for the JVM.
        self._held = os.open(self.path, os.O_WRONLY)
        os.set_blocking(pipe, True)
        with suppress(OSError):
            fcntl.fcntl(self._held, _SET_PIPE_SIZE, PIPE_BYTES)
        self._thread = Thread(
            target=self._run, args=(os.fdopen(pipe, "rb", buffering=0),), name="rows", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._held)
        self._thread.join()
        self.path.unlink(missing_ok=True)
        # The JVM's error then is that its pipe is closed.
        if self._failure is not None:
            raise self._failure

    def _run(self, pipe: BinaryIO) -> None:
        try:
            with pipe:
                for batch in _batches(pipe):
                    self._take(batch)
        except BaseException as error:
            self._failure = error


def _batches(pipe: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The batches of a pipe; one that is cut off, as the JVM failed, is left out."""
    import pyarrow as pa

    while (head := _read(pipe, 4)) is not None:
        (size,) = struct.unpack(">i", head)
        frame = _read(pipe, size)
        if frame is None:
            return
        with pa.ipc.open_stream(pa.py_buffer(frame)) as stream:
            yield from stream


def _read(pipe: BinaryIO, size: int) -> bytearray | None:
    """So many bytes; None if there are fewer."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            return None
        rest = rest[count:]
    return data


def _mapped(rows: Any, projections: list[Any]) -> Any:
    for each in projections:
        rows = rows.map(each)
    return rows
