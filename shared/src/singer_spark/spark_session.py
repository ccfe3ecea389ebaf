"""The only place where a Spark session is made: UTC everywhere, ANSI casts, logs on standard error."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark import class_archive, jvm_command, jvm_gateway
from singer_spark.cluster import CLUSTER_CONF, LOCAL, cluster_conf, is_local, tell_of_waiting
from singer_spark.connect_session import connect
from singer_spark.errors import ConfigurationError, SingerSparkError, wants_traceback
from singer_spark.java import cache_folder, find_java_home
from singer_spark.jvm_command import JvmStart, spark_home, with_jars
from singer_spark.scratch import scratch_folder
from singer_spark.shortage import shortage
from singer_spark.spark_jvm import start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_TO_CLEAN_UP = 5
EXECUTOR_OPTIONS = "-Duser.timezone=UTC -Xss4m"
JVM_OPTIONS = f"{EXECUTOR_OPTIONS} -XX:+UseSerialGC"
# A program's JVM lives for seconds or minutes: compiled later than a server's, what runs often enough to pay for it is
# all the same compiled soon.
COMPILER_OPTIONS = (
    "-XX:Tier3InvocationThreshold=1000 -XX:Tier3MinInvocationThreshold=500 -XX:Tier3CompileThreshold=5000 "
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=3000 -XX:Tier4CompileThreshold=60000 "
    "-XX:Tier4BackEdgeThreshold=160000"
)
# A heap that begins small grows by what lives, and not by what was once alive.
HEAP_OPTIONS = "-Xms224m -XX:NewSize=112m"
LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
# Spark takes itself for a shell here: it announces the level of this logger where it differs from the root's.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
BASE_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.sources.timestampNTZTypeInference.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    # A column may be named ${env:HOME}: no text that we hand to Spark has variables.
    "spark.sql.variable.substitute": "false",
    # What a driver calls CHAR(n) is read as it is: the database itself says whether it is padded.
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "1g",
}
BASE_HADOOP_CONF = {
    # Whatever Spark writes is staged out of sight, so the quick committer is safe.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


HADOOP_PREFIX = "spark.hadoop."


@dataclass(frozen=True)
class SparkOptions:
    """What a session needs.

    Attributes:
        app_name: Shown by a cluster.
        master: `local[*]` where not given.
        remote: A Spark Connect URL, instead of a master.
        conf: The user's own settings; they win over ours, but for the time zone.
        jars: Local paths of drivers and connectors.
        hadoop_conf: Storage options, without the `spark.hadoop.` prefix.
        log_level: Of the JVM: `ERROR`, `WARN`, `INFO`; where not given, `WARN` if the user wants traces, else `OFF`:
            Spark reports a failed job with traces, several times over, and the program says it in one line.
    """

    app_name: str
    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    hadoop_conf: Mapping[str, str] = field(default_factory=dict)
    log_level: str | None = None


def begin_jvm(options: SparkOptions) -> None:
    """Starts the JVM in the background, unless there is one, or a server has it; no session is made in it.

    Raises:
        ConfigurationError: no Java is there.
    """
    if options.remote or jvm_gateway.is_begun():
        return
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if not wants_traceback(options.app_name):
        logging.getLogger().addFilter(_is_not_of_py4j)
    start, grace = _start(options), _grace_seconds(options)
    if (command := jvm_command.at_once(start)) is not None:
        variables = jvm_command.variables_at_once(start)
        jvm_gateway.begin(lambda: start_jvm(command, grace_seconds=grace, variables=variables), start.jars)
    else:
        jvm_gateway.begin(lambda: start_jvm(jvm_command.by_spark_submit(start), grace_seconds=grace), ())


def get_gateway(options: SparkOptions) -> Any:
    """Py4J's gateway to the JVM, in which a session may be made or not.

    Raises:
        ConfigurationError: no Java is there, or it does not start with these settings.
    """
    begin_jvm(options)
    try:
        return jvm_gateway.gateway()
    except Exception as error:
        raise _not_started(error) from error


def get_session(options: SparkOptions) -> SparkSession:
    """Starts the session, or gives the one that runs in this process.

    Raises:
        ConfigurationError: no Java is there, or Spark can't start with these settings.
    """
    begin_jvm(options)
    # Imported while the JVM starts: both take a second.
    from pyspark.sql import SparkSession

    if options.remote:
        return connect(options.remote, _remote_conf(options), _hadoop_conf(options), options.jars)
    builder = SparkSession.builder.appName(options.app_name).master(options.master or LOCAL)
    for name, value in with_jars(session_conf(options), jvm_gateway.lacking(options.jars)).items():
        builder = builder.config(name, value)
    try:
        with jvm_gateway.known_to_pyspark(), _same_ctrl_c():
            session = builder.getOrCreate()
    except Exception as error:
        raise _not_started(error) from error
    # Set here and not by the builder: PySpark hands the builder's settings to the JVM's command line, for all to see.
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in _hadoop_conf(options).items():
        hadoop.set(name, value)
    if not is_local(options.master):
        tell_of_waiting(session)
    return session


def session_conf(options: SparkOptions) -> dict[str, str]:
    """All settings of the session but the storage's and our jars, those of the user laid over ours."""
    conf = dict(BASE_CONF)
    # Loopback spares a wait on machines whose host name does not resolve; a cluster must reach the driver.
    if is_local(options.master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        conf |= cluster_conf(options.conf)
    conf |= {name: str(value) for name, value in options.conf.items() if not name.startswith(HADOOP_PREFIX)}
    own = {"spark.driver.extraJavaOptions": JVM_OPTIONS, "spark.executor.extraJavaOptions": EXECUTOR_OPTIONS}
    for name, ours in own.items():
        conf[name] = " ".join(filter(None, [ours, conf.get(name)]))
    conf["spark.sql.session.timeZone"] = "UTC"
    return conf


def _remote_conf(options: SparkOptions) -> dict[str, str]:
    """Of our settings those that one session on a server may have, and all of the user's."""
    ours = {name: value for name, value in {**BASE_CONF, **CLUSTER_CONF}.items() if name.startswith("spark.sql.")}
    del ours["spark.sql.catalogImplementation"]
    user = {name: str(value) for name, value in options.conf.items() if not name.startswith(HADOOP_PREFIX)}
    return {**ours, **user, "spark.sql.session.timeZone": "UTC"}


def _hadoop_conf(options: SparkOptions) -> dict[str, str]:
    prefixed = {name: str(value) for name, value in options.conf.items() if name.startswith(HADOOP_PREFIX)}
    user = {name.removeprefix(HADOOP_PREFIX): value for name, value in prefixed.items()}
    return {**BASE_HADOOP_CONF, **options.hadoop_conf, **user}


def stop_session() -> None:
    """Stops the session and its JVM, if there is one; another one may be started."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    jvm_gateway.close()


def _start(options: SparkOptions) -> JvmStart:
    """What the JVM is started with: which Java, its memory, its class path, its logging."""
    java_home = find_java_home()
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ.pop("SPARK_HOME", None)
    os.environ.pop("_JAVA_OPTIONS", None)
    level = options.log_level or ("WARN" if wants_traceback(options.app_name) else "OFF")
    conf = {"spark.master": options.master or LOCAL, "spark.app.name": options.app_name, **session_conf(options)}
    java_options = [
        # A JVM without memory may hang as well as fail; in front, so that the user's own options win.
        "-XX:+ExitOnOutOfMemoryError",
        COMPILER_OPTIONS,
        HEAP_OPTIONS,
        f'-Djava.io.tmpdir="{scratch_folder()}"',
        conf["spark.driver.extraJavaOptions"],
        f"-Dlog4j2.configurationFile={_log_configuration(level).as_uri()}",
        *class_archive.java_options(java_home),
    ]
    return JvmStart(java_home, spark_home(), conf, " ".join(java_options), options.jars)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs a trace by the root logger when the JVM is gone, which the program tells in one line."""
    return Path(record.pathname).parent.name != "py4j"


def _grace_seconds(options: SparkOptions) -> float:
    """A local JVM that keeps all it writes in our scratch folder leaves nothing; others have something to clean up."""
    elsewhere = "spark.local.dir" in options.conf or "SPARK_LOCAL_DIRS" in os.environ
    return 0 if is_local(options.master) and not elsewhere else SECONDS_TO_CLEAN_UP


def local_cores(options: SparkOptions) -> int | None:
    """How many tasks a session on this machine runs at a time; None where only the session can tell."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", options.master or LOCAL)
    if found is None or options.remote or "spark.default.parallelism" in options.conf:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


@contextmanager
def _same_ctrl_c() -> Iterator[None]:
    """Keeps the program's handler of SIGINT, which a SparkContext made in the main thread replaces by its own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _log_configuration(level: str) -> Path:
    """The JVM's logging as a file; written whole, so that two programs starting at once never meet half of it."""
    text = LOGGING.format(level=level.lower())
    path = cache_folder() / f"log4j2-{hashlib.sha256(text.encode()).hexdigest()[:12]}.properties"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(path)
    return path


def _not_started(error: Exception) -> SingerSparkError:
    cause = " ".join(str(error).split())[:500] or type(error).__name__
    return shortage(error) or ConfigurationError(f"Spark did not start: {cause}; look at `spark` in the config")
