"""The only module that makes Spark sessions, or just the context that runs tasks.

On a Spark Connect server, the session's settings are set and the server's are checked.

ConfigurationError: there is no Java, or Spark does not start with these settings.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.core.lean_imports import allow_pandas
from singer_spark.core.scratch import scratch_folder, write_whole
from singer_spark.engine import class_archive, gateway
from singer_spark.engine.class_archive import ROWS, SESSION
from singer_spark.engine.command import JAVA_OPTIONS, JvmCommand, jvm_command, spark_home, with_jars
from singer_spark.engine.java import cache_folder, find_java_home
from singer_spark.engine.kept_jvm import started_or_kept
from singer_spark.engine.spark_settings import (
    SparkOptions,
    hadoop_conf,
    is_local,
    master_url,
    remote_conf,
    session_conf,
    warn_while_waiting,
)
from singer_spark.engine.spark_versions import (
    be_patient,
    hadoop_configuration,
    running_context,
    set_at_once,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import (
    ConfigurationError,
    ResourceError,
    SingerSparkError,
    cut,
    shortage,
    wants_traceback,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SECONDS_TO_CLEAN_UP = 5
# A program's JVM lives for seconds or minutes, so it compiles later than a server's; code that runs
# often enough is still compiled soon.
COMPILER_OPTIONS = (
    "-XX:Tier3InvocationThreshold=1000 -XX:Tier3MinInvocationThreshold=500 "
    "-XX:Tier3CompileThreshold=5000 -XX:Tier4InvocationThreshold=20000 "
    "-XX:Tier4MinInvocationThreshold=3000 -XX:Tier4CompileThreshold=60000 "
    "-XX:Tier4BackEdgeThreshold=160000"
)
# With only its first compiler, a JVM has room for 48 MB of compiled code, and stops compiling when
# it is full.
CODE_CACHE_OPTIONS = "-XX:ReservedCodeCacheSize=240m"
# A heap that begins small grows with live data, not with garbage.
HEAP_OPTIONS = "-Xms224m -XX:NewSize=112m"
SMALL_HEAP_OPTIONS = "-Xms64m -XX:NewSize=16m"
# Drivers log a URL that they can't parse, or pieces of it; the connection's error has the same,
# redacted.
DRIVERS = (
    "org.postgresql org.mariadb.jdbc com.mysql oracle.jdbc oracle.net com.microsoft.sqlserver "
    "com.ibm.db2 org.h2 org.apache.derby org.sqlite org.duckdb net.snowflake"
).split()
LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
# As in its shell, Spark announces the level of this logger where it is not the root's.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
_starting = threading.Lock()
# Names of UTC and zones equal to it.
_UTC = "UTC Etc/UTC Z GMT Etc/GMT UCT Etc/UCT Zulu Universal Etc/Universal".split()
_ZONE = "reflect('java.time.ZoneId', 'systemDefault') AS zone"
# With pauses of up to five seconds, about fifteen seconds in all.
RETRIES = 6
LONGEST_PAUSE = 5_000
# Number of tasks that check, so that several executors are covered, if there are any.
ZONE_LOOKS = 8
_SERVER_WAY = "the server owns it: set it where the server is started"


def command_for(options: SparkOptions) -> JvmCommand:
    """The command that starts the JVM for these options.

    Raises:
        ConfigurationError: there is no Java.
    """
    java_home = find_java_home()
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ["SPARK_HOME"] = str(spark_home())
    os.environ.pop("_JAVA_OPTIONS", None)
    level = options.log_level or ("WARN" if wants_traceback(options.app_name) else "OFF")
    conf = {
        "spark.master": master_url(options.master),
        "spark.app.name": options.app_name,
        **session_conf(options),
    }
    java_options = [
        # A JVM that is out of memory may hang instead of failing. These come first, so that the
        # user's own options win.
        "-XX:+ExitOnOutOfMemoryError",
        COMPILER_OPTIONS,
        CODE_CACHE_OPTIONS,
        HEAP_OPTIONS if options.rows else SMALL_HEAP_OPTIONS,
        f'-Djava.io.tmpdir="{scratch_folder()}"',
        f'-XX:ErrorFile="{scratch_folder()}/jvm-failure.log"',
        conf[JAVA_OPTIONS],
        f"-Dlog4j2.configurationFile={_log_configuration(level).as_uri()}",
        *class_archive.java_options(java_home, ROWS if options.only_jvm else SESSION),
    ]
    return jvm_command(java_home, conf, " ".join(java_options), options.jars)


def own_variables(options: SparkOptions) -> dict[str, str]:
    """Environment variables of the JVM alone."""
    # Spark's launcher is a JVM too: if it can't start, it must not leave a report in the user's
    # folder.
    launcher = (
        f"{os.environ.get('SPARK_LAUNCHER_OPTS', '')} "
        f"-XX:ErrorFile={scratch_folder()}/jvm-failure.log"
    )
    variables = {"SPARK_LAUNCHER_OPTS": launcher.strip()}
    if is_local(options.master):
        # Otherwise Spark looks up the machine's own name, and fails if that does not resolve.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def grace_seconds(options: SparkOptions) -> float:
    """How long the JVM may clean up: 0 for a local one that only writes to our scratch folder."""
    elsewhere = "spark.local.dir" in options.conf or "SPARK_LOCAL_DIRS" in os.environ
    return 0 if is_local(options.master) and not elsewhere else SECONDS_TO_CLEAN_UP


def _log_configuration(level: str) -> Path:
    """The JVM's logging configuration file."""
    text = LOGGING.format(level=level.lower())
    text += "".join(
        f"logger.driver{n}.name = {name}\nlogger.driver{n}.level = off\n"
        for n, name in enumerate(DRIVERS)
    )
    path = cache_folder() / f"log4j2-{hashlib.sha256(text.encode()).hexdigest()[:12]}.properties"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return path


def begin_jvm(options: SparkOptions) -> None:
    """Start the JVM in the background, without a session, unless there is one, or Spark runs on a
    server.
    """
    if options.remote or gateway.is_begun():
        return
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if not wants_traceback(options.app_name):
        logging.getLogger().addFilter(_is_not_of_py4j)
    command, variables, grace = command_for(options), own_variables(options), grace_seconds(options)
    gateway.begin(
        lambda: started_or_kept(command.words, variables, grace_seconds=grace), command.jars
    )


def get_gateway(options: SparkOptions) -> Any:
    """Py4J's gateway to the JVM, with or without a session in it."""
    begin_jvm(options)
    try:
        return gateway.gateway()
    except Exception as error:
        raise _not_started(error) from error


def import_pyspark() -> None:
    """Import PySpark from its root.

    To be called before any import of it that may be concurrent with others.

    Its root imports its parts, and importing a part imports the root. If two threads start at both
    ends, one gets a partial module.
    """
    allow_pandas()
    # No task uses pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    warnings.filterwarnings("ignore", "The distutils package is deprecated", DeprecationWarning)
    gateway.import_py4j()
    importlib.import_module("pyspark")


def get_session(options: SparkOptions) -> SparkSession:
    """Start the session, or return the one that runs in this process."""
    if options.remote:
        import_pyspark()
        return connect(
            options.remote, {**remote_conf(options), **hadoop_conf(options)}, options.jars
        )
    get_context(options)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in _conf(options).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise _not_started(error) from error


def get_context(options: SparkOptions) -> SparkContext:
    """Start the context that runs tasks, or return this process's; a session would take twice as
    long.
    """
    begin_jvm(options)
    # While the JVM starts: both take a second.
    import_pyspark()
    from pyspark import SparkConf, SparkContext

    with _starting:
        known = running_context()
        conf = SparkConf(loadDefaults=False).setAll(list(_conf(options).items()))
        try:
            with gateway.known_to_pyspark(), _same_ctrl_c():
                context = known or SparkContext(conf=conf)
        except Exception as error:
            raise _not_started(error) from error
    # Set here and not in `conf`, because PySpark puts that on the JVM's command line, visible to
    # everyone.
    hadoop = hadoop_configuration(context)
    for name, value in hadoop_conf(options).items():
        hadoop.set(name, value)
    if known is None and not is_local(options.master):
        warn_while_waiting(context)
    return context


def _conf(options: SparkOptions) -> dict[str, str]:
    named = {"spark.app.name": options.app_name, "spark.master": master_url(options.master)}
    return named | with_jars(session_conf(options), gateway.lacking(options.jars))


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Filter out Py4J's tracebacks in the root logger when the JVM is gone, which the program
    reports in one line.
    """
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _same_ctrl_c() -> Iterator[None]:
    """Keep the program's SIGINT handler, which a SparkContext made in the main thread replaces by
    its own.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _not_started(error: Exception) -> SingerSparkError:
    if isinstance(error, ResourceError):
        return error
    cause = cut(str(error), 500) or type(error).__name__
    return shortage(error) or ConfigurationError(
        RunCode.SPARK_NOT_STARTED, f"Spark did not start: {cause}; check `spark` in the config"
    )


def connect(url: str, conf: Mapping[str, str], jars: Sequence[str]) -> SparkSession:
    """A new session on the server at `sc://host:port/;…`, to which local jars are sent.

    Raises:
        ConfigurationError: a package is missing, the server can't be reached, or is not set up
            correctly.
    """
    try:
        from pyspark.sql import SparkSession

        # An application's name would cause a first request before the retries are set below.
        session: Any = SparkSession.builder.remote(url).create()
        be_patient(session, RETRIES, LONGEST_PAUSE)
        atexit.register(_leave, session)
        _set_all(session, conf)
        if jars:
            session.addArtifacts(*jars)
        check_zone(session)
    except SingerSparkError:
        raise
    except ImportError as error:
        lacking = cut(str(error), 200)
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            "spark.remote needs packages that are not installed: pip install "
            f"'singer-spark[connect]' ({lacking})",
        ) from error
    except Exception as error:
        cause = cut(str(error), 400) or type(error).__name__
        raise ConfigurationError(
            RunCode.CONNECT_FAILED,
            f"no session on the Spark Connect server: {cause}; check spark.remote",
        ) from error
    return session  # type: ignore[no-any-return]


def _leave(session: Any) -> None:
    """Release the session on the server, without waiting for a server that is gone."""
    be_patient(session, 0, LONGEST_PAUSE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


def _set_all(session: Any, conf: Mapping[str, str]) -> None:
    """Set everything in one request; if the server refuses, one by one, to name the setting."""
    with suppress(Exception):
        if set_at_once(session, conf):
            return
    for name, value in conf.items():
        _set(session, name, value)


def _set(session: SparkSession, name: str, value: str) -> None:
    try:
        session.conf.set(name, value)
    except Exception as error:
        # The value may be a secret, and so may the server's message about it.
        if "CANNOT_MODIFY" in str(error):
            raise ConfigurationError(
                RunCode.CONNECT_UNSUITABLE,
                f"spark.conf: {name} can't be set for one session, {_SERVER_WAY}",
            ) from None
        raise


def check_zone(session: SparkSession) -> None:
    """Check that the server's JVMs are in UTC: times without a zone pass through their zone."""
    zones = {
        row.zone for row in session.range(0, ZONE_LOOKS, 1, ZONE_LOOKS).selectExpr(_ZONE).collect()
    }
    wrong = sorted(zone for zone in zones if zone not in _UTC)
    if wrong:
        raise ConfigurationError(
            RunCode.CONNECT_UNSUITABLE,
            f"the Spark Connect server runs in the zone {', '.join(wrong)}, in which times "
            "without a zone may shift; start it with -Duser.timezone=UTC in "
            "spark.driver.extraJavaOptions and spark.executor.extraJavaOptions",
        )
