"""What differs between PySpark's versions 3.5 to 4.3, and all use of its private members.

The public ones would need a session, a second request or a pass over the rows in Python. A test
looks at each of `PRIVATE` in the installed version, and so names the one that a new version has
changed. PySpark is not imported with this module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Whether bytes are UTF-8.
IS_UTF8 = "is_valid_utf8(CAST({c} AS STRING))"
_SQL = "org.apache.spark.sql."
_CATALYST = f"{_SQL}catalyst."
_JDBC, _ARROW = f"{_SQL}execution.datasources.jdbc.", f"{_SQL}execution.arrow."


@dataclass(frozen=True)
class PrivateMember:
    """A member that Spark may change without notice.

    Attributes:
        owner: A class of the JVM, `$` at a Scala object's end; or a Python module, `:`, a class.
        name: A method, or an attribute of Python's.
        arguments: How many a method of the JVM takes; None: any number, or no method.
        since: The first version that has it.
        until: The first version that no longer has it, or has it with other arguments.
    """

    owner: str
    name: str
    arguments: int | None = None
    since: tuple[int, int] = (3, 5)
    until: tuple[int, int] = (5, 0)

    @property
    def is_used(self) -> bool:
        """Whether it is used with the installed version."""
        return self.since <= spark_version() < self.until


# Looked for by the test in 3.5.9, 4.0.5, 4.1.4, 4.2.1 and 4.3.0.
PRIVATE = (
    # Rows of a query as Arrow batches in a JVM without a session: `arrow_rows`.
    PrivateMember(f"{_JDBC}JdbcUtils$", "resultSetToSparkInternalRows", 4, until=(4, 1)),
    PrivateMember(f"{_JDBC}JdbcUtils$", "resultSetToSparkInternalRows", 5, since=(4, 1)),
    PrivateMember(f"{_ARROW}ArrowConverters$", "toBatchWithSchemaIterator", 6, until=(4, 0)),
    PrivateMember(f"{_ARROW}ArrowConverters$", "toBatchWithSchemaIterator", 7, since=(4, 0)),
    PrivateMember("org.apache.spark.api.python.PythonRDD", "writeIteratorToStream", 2),
    PrivateMember("org.apache.spark.executor.InputMetrics", "<init>", 0),
    PrivateMember(f"{_SQL}jdbc.JdbcDialects$", "get", 1),
    PrivateMember(f"{_SQL}jdbc.JdbcDialect", "beforeFetch", 2),
    PrivateMember(f"{_JDBC}JDBCOptions", "<init>", 1, since=(4, 2)),
    PrivateMember(f"{_SQL}internal.SQLConf$", "get", 0),
    PrivateMember(f"{_SQL}internal.SQLConf", "setConf", 1),
    PrivateMember(f"{_CATALYST}expressions.UnsafeProjection$", "create", 1),
    PrivateMember(f"{_CATALYST}expressions.InterpretedUnsafeProjection$", "createProjection", 1),
    PrivateMember(f"{_CATALYST}expressions.BindReferences$", "bindReferences", 2),
    PrivateMember(f"{_CATALYST}expressions.package$", "AttributeSeq", 1),
    PrivateMember(f"{_CATALYST}types.DataTypeUtils$", "toAttributes", 1),
    PrivateMember(f"{_CATALYST}plans.logical.LocalRelation$", "apply", 1),
    PrivateMember(f"{_CATALYST}parser.CatalystSqlParser$", "parsePlan", 1),
    PrivateMember(f"{_CATALYST}catalog.InMemoryCatalog", "<init>", 2),
    PrivateMember(f"{_CATALYST}catalog.SessionCatalog", "<init>", 2),
    PrivateMember(f"{_CATALYST}analysis.FunctionRegistry$", "builtin", 0),
    PrivateMember(f"{_CATALYST}analysis.Analyzer", "<init>", 1),
    PrivateMember(f"{_CATALYST}analysis.Analyzer", "checkAnalysis", 1),
    PrivateMember(f"{_CATALYST}optimizer.ReplaceExpressions$", "apply", 1),
    PrivateMember(f"{_CATALYST}optimizer.RewriteWithExpression$", "apply", 1, since=(4, 0)),
    # The JVM that this process has started, and its settings: `gateway`, `session`.
    PrivateMember("pyspark:SparkContext", "_gateway"),
    PrivateMember("pyspark:SparkContext", "_jvm"),
    PrivateMember("pyspark:SparkContext", "_jsc"),
    PrivateMember("pyspark:SparkContext", "_active_spark_context"),
    PrivateMember("pyspark:SparkContext", "_accumulatorServer"),
    PrivateMember("pyspark.errors.exceptions.captured:CapturedException", "_origin"),
    # Python in tasks without warnings of sockets left open, or a second job: `python_tasks`.
    PrivateMember("pyspark:cloudpickle", "register_pickle_by_value"),
    PrivateMember("pyspark.rdd:PipelinedRDD", "_jrdd", until=(4, 0)),
    PrivateMember("pyspark.core.rdd:PipelinedRDD", "_jrdd", since=(4, 0)),
    PrivateMember("pyspark.sql.dataframe:DataFrame", "_jdf", until=(4, 0)),
    PrivateMember("pyspark.sql.classic.dataframe:DataFrame", "_jdf", since=(4, 0)),
    # Spark Connect without a second request, or ten minutes of patience: `session`,
    # `connect_answer`.
    PrivateMember("pyspark.sql.connect.client:SparkConnectClient", "to_table"),
    PrivateMember("pyspark.sql.connect.client:SparkConnectClient", "_retry_policy", until=(4, 0)),
    PrivateMember("pyspark.sql.connect.dataframe:DataFrame", "_plan"),
    PrivateMember(
        "pyspark.sql.connect.client:SparkConnectClient", "set_retry_policies", since=(4, 0)
    ),
    PrivateMember("pyspark.sql.connect.client.retries:DefaultPolicy", "__init__", since=(4, 0)),
    PrivateMember("pyspark.sql.connect.conf:RuntimeConf", "_set_all", since=(4, 0)),
)


@cache
def spark_version() -> tuple[int, int]:
    """PySpark's version: 3.5 as (3, 5)."""
    major, minor = version("pyspark").split(".")[:2]
    return int(major), int(minor)


def gateway_of_pyspark() -> Any:
    """Py4J's gateway, if a session was made in this process."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return None if context is None else context._gateway


def forget_gateway() -> None:
    """Let the next session of this process get a gateway of its own: the JVM of this one ended."""
    context = sys.modules["pyspark"].SparkContext
    context._gateway, context._jvm = None, None


def running_context() -> SparkContext | None:
    """The context of this process; unlike `getOrCreate`, none is made."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def hadoop_configuration(context: SparkContext) -> Any:
    """Hadoop's settings in the JVM of a context."""
    return context._jsc.hadoopConfiguration()


def silence_accumulators(context: SparkContext) -> None:
    """Let a JVM that is gone not be reported a second time, by a traceback."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def collected(values: RDD[Any]) -> list[bytes]:
    """All values, pickled, by the JVM's own `collect`: PySpark's leaves open the socket from which
    it reads results.
    """
    return list(values._jrdd.collect())


def collected_rows(rows: DataFrame) -> list[Any]:
    """All rows, as the JVM's objects, by its own `collect`, as of an RDD: warnings can't be
    silenced for one thread alone.
    """
    return list(rows._jdf.collectAsList())


def origin_of(error: BaseException) -> Any:
    """The error that Py4J raised, or Java's exception itself, if PySpark raised another for it."""
    return getattr(error, "_origin", None) or error


def rows_of_result(
    utilities: Any, result: Any, dialect: Any, schema: Any, metrics: Any, none: Any
) -> Any:
    """A Scala iterator of a result's rows, by `JdbcUtils`."""
    # The time that a fetch takes: an `Option[SQLMetric]`.
    more = (none,) if spark_version() >= (4, 1) else ()
    return utilities.resultSetToSparkInternalRows(result, dialect, schema, metrics, *more)


def takes_jdbc_options() -> bool:
    """Whether dialects prepare a connection by its `JDBCOptions`.

    If so, they do nothing when they are given a map of options.
    """
    return spark_version() >= (4, 2)


def arrow_batches(
    converters: Any, rows: Any, schema: Any, batch_rows: int, batch_bytes: int
) -> Any:
    """An iterator of Arrow streams of rows, by `ArrowConverters`."""
    # The zone of timestamps, whether names must differ, and whether texts may have more than 2 GB
    # in a batch.
    more = (False,) if spark_version() >= (4, 0) else ()
    return converters.toBatchWithSchemaIterator(
        rows, schema, batch_rows, batch_bytes, "UTC", False, *more
    )


def rewriting_rules() -> tuple[str, ...]:
    """Rules of the optimizer without which some expressions can't be evaluated."""
    rules = ("ReplaceExpressions", "RewriteWithExpression")
    return rules if spark_version() >= (4, 0) else rules[:1]


def reflection_options() -> tuple[str, ...]:
    """The option of Java for reflection that the launcher of this version gives each driver."""
    return ("-Djdk.reflect.useDirectMethodHandle=false",) if spark_version() < (4, 3) else ()


def memory_options() -> tuple[str, ...]:
    """The option for direct memory that the launcher of this version gives each driver; an older
    Java ignores it.
    """
    return ("--sun-misc-unsafe-memory-access=allow",) if spark_version() >= (4, 3) else ()


def has_flag_for_defaults() -> bool:
    """Whether `spark-submit` reads its own file of settings besides one that it is given."""
    return spark_version() >= (4, 0)


def in_this_version(template: str) -> str:
    """A template of Spark SQL over `{c}`, with the functions that the installed version has."""
    if spark_version() >= (4, 0):
        return template
    # Bytes that are not UTF-8 are replaced there; later versions refuse them.
    return template.replace(IS_UTF8, "encode(decode({c}, 'UTF-8'), 'UTF-8') = {c}")


def repartitioned(rows: DataFrame, count: int, number: str) -> DataFrame:
    """The rows, so that those with the same number below `count` are in one partition.

    Before 4.1 others may be there, too.
    """
    from pyspark.sql import functions as F

    if spark_version() >= (4, 1):
        return rows.repartitionById(count, F.col(number).cast("int"))
    return rows.repartition(count, number)


def sent_rows(session: SparkSession, columns: Mapping[str, Sequence[int]]) -> DataFrame:
    """Whole numbers of this process as rows of Spark, without a job."""
    if spark_version() >= (4, 0):
        import pyarrow as pa

        return session.createDataFrame(
            pa.table({name: pa.array(each, pa.int64()) for name, each in columns.items()})
        )
    rows = list(zip(*columns.values(), strict=True))
    return session.createDataFrame(rows, ", ".join(f"{name} bigint" for name in columns))


def be_patient(session: Any, retries: int, longest_pause: int) -> None:
    """Set how often Spark Connect repeats a request, and the longest pause in milliseconds."""
    if spark_version() >= (4, 0):
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session.client.set_retry_policies(
            [DefaultPolicy(max_retries=retries, max_backoff=longest_pause)]
        )
    else:
        session.client._retry_policy.update(max_retries=retries, max_backoff=longest_pause)


def set_at_once(session: Any, conf: Mapping[str, str]) -> bool:
    """Set settings of a session of Spark Connect by one request; False if the client can't."""
    if spark_version() < (4, 0):
        return False
    session.conf._set_all(dict(conf), silent=False)
    return True


def answer(frame: Any) -> tuple[pa.Table, StructType]:
    """All rows of a frame of Spark Connect, and their schema, with one request: `collect` and
    `toArrow` make two.

    A JDBC relation costs a connection to the database for each request.
    """
    client = frame.sparkSession.client
    observed = (frame._plan.observations,) if spark_version() >= (4, 0) else ()
    table, schema = client.to_table(frame._plan.to_proto(client), *observed)[:2]
    return table, frame.schema if schema is None else schema
