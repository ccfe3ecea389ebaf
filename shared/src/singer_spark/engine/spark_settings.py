"""Where Spark runs, and its settings: `engine` and `spark`, which are the same for tap and target,
and those of a session: UTC everywhere, ANSI casts, and the user's settings over them.

A cluster's executors can't access this machine's disk; `shares_disk` is the only test for that.
While a cluster has no executor available, there are warnings.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from singer_spark.core.lean_imports import is_pandas_installed
from singer_spark.core.settings import NOT_EMPTY, setting
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

LOCAL_MASTER = "local[*]"
# Two programs share the cluster: each takes at most this much of it, and leaves unused executors to
# the other.
SHARED_CONF = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "20s",
}
# If the user sets one of these, the user decides how much is taken.
SIZED_BY = ("spark.cores.max", "spark.executor.instances", "spark.dynamicAllocation.enabled")
CLUSTER_CONF = {
    # A task's result is held in this process's memory; larger slices are sent in pieces.
    "spark.driver.maxResultSize": "192m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
# These clusters hand a secret that Spark makes for each application to its executors. A standalone
# cluster has one secret for all, which only its owner can set.
SECURE_CONF = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
YARN_CONF = {
    **SECURE_CONF,
    # `spark-submit` determines that executors of a Python program need PySpark; a context made
    # without it needs this setting.
    "spark.yarn.isPython": "true",
    # A service that does not authenticate would refuse the executors.
    "spark.shuffle.service.enabled": "false",
}
KUBERNETES, YARN = "k8s://", "yarn"
REMOTE_TASKS = 4
LOOK_SECONDS = 20.0
AUTO, LOCAL, SPARK = "auto", "local", "spark"
HADOOP_PREFIX = "spark.hadoop."
PARALLELISM = "spark.default.parallelism"
EXECUTOR_OPTIONS = "-Duser.timezone=UTC -Xss4m"
JVM_OPTIONS = f"{EXECUTOR_OPTIONS} -XX:+UseSerialGC"
BASE_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.sources.timestampNTZTypeInference.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    # A column may be named ${env:HOME}: variables must not be substituted in any text passed to
    # Spark.
    "spark.sql.variable.substitute": "false",
    # Otherwise each method of a column asks the JVM six times, so that an error can name the line
    # of Python that called it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A driver's CHAR(n) is read as it is; whether it is padded is up to the database.
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "8",
    # Rows passed to an executor's Python worker at a time.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.driver.memory": "1g",
    # Keys of masks, in Spark's output of plans.
    "spark.sql.redaction.string.regex": "(?i)(0x|X')[0-9a-f]{128}'?",
}
LOCAL_CONF = {
    # Loopback avoids a wait on machines whose host name does not resolve; a cluster must reach the
    # driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Otherwise Spark's ports answer any account of the machine: they give out passwords in
    # broadcasts, and run what they are sent. Spark makes the secret itself.
    "spark.authenticate": "true",
}


def is_local(master: str | None) -> bool:
    """Whether executors are threads or processes of this machine."""
    return (master or LOCAL_MASTER).startswith("local")


def master_url(master: str | None) -> str:
    """The master in the form a context accepts: for Kubernetes with the protocol that
    `spark-submit` would add.
    """
    if master is None or not master.startswith(KUBERNETES):
        return master or LOCAL_MASTER
    location = master.removeprefix(KUBERNETES)
    return master if "://" in location else f"{KUBERNETES}https://{location}"


def shares_disk(session: SparkSession) -> bool:
    """Whether executors can read what this process writes to its disk, and the reverse."""
    return not is_remote(session) and is_local(session.conf.get("spark.master", LOCAL_MASTER))


def is_remote(session: SparkSession) -> bool:
    """Whether the session is a client of Spark Connect; the master it reports is the server's."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def cluster_conf(conf: Mapping[str, str], master: str | None) -> dict[str, str]:
    """The settings of a session on a cluster that are not in the user's `conf`."""
    shared = {} if any(name in conf for name in SIZED_BY) else SHARED_CONF
    is_secure = (master or "").startswith(KUBERNETES) or conf.get("spark.authenticate") == "true"
    managed = YARN_CONF if master == YARN else SECURE_CONF if is_secure else {}
    return {
        name: value
        for name, value in {**CLUSTER_CONF, **shared, **managed}.items()
        if name not in conf
    }


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks the session runs in parallel, once it has all its executors."""
    if is_remote(session):
        return REMOTE_TASKS
    if shares_disk(session):
        return int(session.sparkContext.defaultParallelism)
    cores = _number(session, "spark.executor.cores") or 1
    executors = _number(session, "spark.executor.instances")
    if str(session.conf.get("spark.dynamicAllocation.enabled", "false")) == "true":
        executors = _number(session, "spark.dynamicAllocation.maxExecutors")
    most = _number(session, "spark.cores.max")
    requested = executors * cores if executors else None
    return min(
        filter(None, (most, requested)), default=int(session.sparkContext.defaultParallelism)
    )


def _number(session: SparkSession, name: str) -> int | None:
    value = str(session.conf.get(name, ""))
    return int(value) if value.isdecimal() and int(value) < 2**31 - 1 else None


def warn_while_waiting(context: SparkContext) -> None:
    """Log a warning, from another thread, when the cluster gives the context's jobs no executor."""
    threading.Thread(target=_watch, args=(context,), name="cluster", daemon=True).start()


def _watch(context: SparkContext) -> None:
    waited = 0.0
    over = threading.Event()
    while not over.wait(LOOK_SECONDS):
        try:
            waited = waited + LOOK_SECONDS if _is_starved(context.statusTracker()) else 0.0
        except Exception:  # the JVM is gone, and with it any waiting job
            return
        if waited > LOOK_SECONDS:
            logger.warning(
                "%s: no task has started on %s for %d s: an executor may still be starting, or "
                    "the cluster has no core or memory for one; in that case give it more, or ask "
                    "for less (spark.dynamicAllocation.maxExecutors, spark.executor.memory)",
                context.appName, context.master, waited,
            )  # fmt: skip


def _is_starved(tracker: Any) -> bool:
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return bool(stages) and not any(stage.numActiveTasks for stage in stages if stage is not None)


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs, and the user's settings for it.

    Attributes:
        master: The Spark master; `local[*]` if None.
        remote: A Spark Connect URL, instead of a master.
        conf: Spark settings, which override the program's own.
    """

    master: str | None = setting(NOT_EMPTY, "Spark master; by default `local[*]`")
    remote: str | None = setting(
        NOT_EMPTY, "URL of a Spark Connect server, instead of a master", secret=True
    )
    conf: Mapping[str, str] = setting(
        {"type": "object"},
        "Spark settings; they override the tap's own",
        of=dict,
        secret=True,
    )

    @classmethod
    def of(cls, setting: Mapping[str, Any]) -> SparkSettings:
        """Parse the setting as a config holds it."""
        return cls(
            setting.get("master"),
            setting.get("remote"),
            MappingProxyType(_dotted(setting.get("conf") or {})),
        )

    @staticmethod
    def problems(setting: Mapping[str, Any]) -> list[str]:
        """Members that contradict each other."""
        if setting.get("master") and setting.get("remote"):
            return ["spark: set either master or remote, not both"]
        return []


def _dotted(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested objects, which Meltano makes of dotted names, to dotted names again."""
    names: dict[str, str] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            names |= _dotted(value, f"{prefix}{name}.")
        else:
            names[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return names


def is_spark(engine: str, spark: SparkSettings) -> bool:
    """Whether Spark's tasks do the work; otherwise this process does."""
    return engine == SPARK or (engine == AUTO and names_cluster(spark))


def names_cluster(spark: SparkSettings) -> bool:
    """Whether Spark's executors are elsewhere."""
    return bool(spark.remote) or not is_local(spark.master)


def engine_and_why(engine: str, spark: SparkSettings) -> str:
    """What does the work, and why, for users."""
    name = SPARK if is_spark(engine, spark) else LOCAL
    if engine != AUTO:
        return f"{name}: the setting engine"
    return f"{name}: {'a' if name == SPARK else 'no'} cluster is named in the setting spark"


def check_pandas(program: str, what: str) -> None:
    """Check that Spark can run Python in its tasks: PySpark requires pandas for that, although no
    task uses it.

    ConfigurationError: `what` can't be done, and how it can.
    """
    if not is_pandas_installed():
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            f"{what} by Spark's Python tasks needs pandas where this program is installed: "
            f"pip install '{program}[cluster]', or set engine to local",
        )


@dataclass(frozen=True)
class SparkOptions:
    """What a session needs.

    Attributes:
        app_name: The name shown by a cluster.
        master: The Spark master; `local[*]` if None.
        remote: A Spark Connect URL, instead of a master.
        conf: The user's own settings; they override ours, except the time zone.
        jars: Local paths of drivers.
        rows: Whether rows are expected to pass through the JVM; if not, it begins with a smaller
            heap.
        only_jvm: Whether the JVM answers queries and reads rows without a session, whose classes it
            need not map.
        log_level: The JVM's log level: `ERROR`, `WARN`, `INFO`; by default `WARN` if the user wants
            tracebacks, else `OFF`: Spark reports a failed job several times, with traces, and the
            program reports it in one line.
    """

    app_name: str
    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    rows: bool = True
    only_jvm: bool = False
    log_level: str | None = None


def session_conf(options: SparkOptions) -> dict[str, str]:
    """All settings of the session except Hadoop's and our jars; the user's override ours."""
    conf = dict(BASE_CONF)
    if is_local(options.master):
        conf |= LOCAL_CONF
    else:
        conf |= cluster_conf(options.conf, options.master)
    conf |= _users_conf(options)
    own = {
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.extraJavaOptions": EXECUTOR_OPTIONS,
    }
    for name, ours in own.items():
        conf[name] = " ".join(filter(None, [ours, conf.get(name)]))
    conf["spark.sql.session.timeZone"] = "UTC"
    return conf


def remote_conf(options: SparkOptions) -> dict[str, str]:
    """Those of our settings that can be set for a session on a server, and all of the user's."""
    ours = {
        name: value
        for name, value in {**BASE_CONF, **CLUSTER_CONF}.items()
        if name.startswith("spark.sql.")
    }
    del ours["spark.sql.catalogImplementation"]
    return {**ours, **_users_conf(options), "spark.sql.session.timeZone": "UTC"}


def _users_conf(options: SparkOptions) -> dict[str, str]:
    """The user's settings except Hadoop's."""
    return {
        name: str(value)
        for name, value in options.conf.items()
        if not name.startswith(HADOOP_PREFIX)
    }


def hadoop_conf(options: SparkOptions) -> dict[str, str]:
    """The user's settings of Hadoop, which may be secrets."""
    return {
        name.removeprefix(HADOOP_PREFIX): str(value)
        for name, value in options.conf.items()
        if name.startswith(HADOOP_PREFIX)
    }


def local_cores(options: SparkOptions) -> int | None:
    """How many tasks a session on this machine runs at a time; None if only the session knows."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", options.master or LOCAL_MASTER)
    if found is None or options.remote or PARALLELISM in options.conf:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
