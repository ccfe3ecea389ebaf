"""Settings of a Spark session: UTC everywhere, ANSI casts, and the user's settings over them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from singer_spark.engine.cluster import CLUSTER_CONF, LOCAL, cluster_conf, is_local

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
            tracebacks, else
            `OFF`: Spark reports a failed job several times, with traces, and the program reports it
            in one line.
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
    conf |= {
        name: str(value)
        for name, value in options.conf.items()
        if not name.startswith(HADOOP_PREFIX)
    }
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
    user = {
        name: str(value)
        for name, value in options.conf.items()
        if not name.startswith(HADOOP_PREFIX)
    }
    return {**ours, **user, "spark.sql.session.timeZone": "UTC"}


def hadoop_conf(options: SparkOptions) -> dict[str, str]:
    """The user's settings of Hadoop, which may be secrets."""
    prefixed = {
        name: str(value) for name, value in options.conf.items() if name.startswith(HADOOP_PREFIX)
    }
    return {name.removeprefix(HADOOP_PREFIX): value for name, value in prefixed.items()}


def local_cores(options: SparkOptions) -> int | None:
    """How many tasks a session on this machine runs at a time; None if only the session knows."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", options.master or LOCAL)
    if found is None or options.remote or PARALLELISM in options.conf:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
