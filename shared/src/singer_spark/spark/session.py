"""The only place where a Spark session is made, or the context alone that runs tasks."""

from __future__ import annotations

import importlib
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SingerSparkError, cut, wants_traceback
from singer_spark.jvm import gateway
from singer_spark.jvm.command import with_jars
from singer_spark.jvm.spark_jvm import start_jvm
from singer_spark.process.shortage import shortage
from singer_spark.spark.cluster import is_local, master_url, tell_of_waiting
from singer_spark.spark.connect_session import connect
from singer_spark.spark.session_conf import SparkOptions, hadoop_conf, local_cores, remote_conf, session_conf
from singer_spark.spark.session_jvm import command_for, grace_seconds

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "SparkOptions",
    "begin_jvm",
    "get_context",
    "get_gateway",
    "get_session",
    "import_pyspark",
    "local_cores",
    "session_conf",
]


_starting = threading.Lock()


def begin_jvm(options: SparkOptions) -> None:
    """Starts the JVM in the background, unless there is one, or a server has it; no session is made in it.

    Raises:
        ConfigurationError: no Java is there.
    """
    if options.remote or gateway.is_begun():
        return
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if not wants_traceback(options.app_name):
        logging.getLogger().addFilter(_is_not_of_py4j)
    command, grace = command_for(options), grace_seconds(options)
    gateway.begin(lambda: start_jvm(command.words, grace_seconds=grace), command.jars)


def get_gateway(options: SparkOptions) -> Any:
    """Py4J's gateway to the JVM, in which a session may be made or not.

    Raises:
        ConfigurationError: no Java is there, or it does not start with these settings.
    """
    begin_jvm(options)
    try:
        return gateway.gateway()
    except Exception as error:
        raise _not_started(error) from error


def import_pyspark() -> None:
    """Imports PySpark from its root; to be called before anything else imports it that may not be alone with that.

    Its root imports its parts, and whoever imports a part imports the root. Of two threads that begin at both ends, one
    gets a half of it.
    """
    gateway.import_py4j()
    importlib.import_module("pyspark")


def get_session(options: SparkOptions) -> SparkSession:
    """Starts the session, or gives the one that runs in this process.

    Raises:
        ConfigurationError: no Java is there, or Spark can't start with these settings.
    """
    if options.remote:
        import_pyspark()
        return connect(options.remote, remote_conf(options), hadoop_conf(options), options.jars)
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
    """Starts what runs tasks, or gives the one of this process; a session, which takes twice as long, is not needed.

    Raises:
        ConfigurationError: no Java is there, or Spark can't start with these settings.
    """
    begin_jvm(options)
    # While the JVM starts: both take a second.
    import_pyspark()
    from pyspark import SparkConf, SparkContext

    with _starting:
        known = SparkContext._active_spark_context
        conf = SparkConf(loadDefaults=False).setAll(list(_conf(options).items()))
        try:
            with gateway.known_to_pyspark(), _same_ctrl_c():
                context = known or SparkContext(conf=conf)
        except Exception as error:
            raise _not_started(error) from error
    # Set here and not in `conf`: PySpark hands that to the JVM's command line, for all to see.
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in hadoop_conf(options).items():
        hadoop.set(name, value)
    if known is None and not is_local(options.master):
        tell_of_waiting(context)
    return context


def _conf(options: SparkOptions) -> dict[str, str]:
    named = {"spark.app.name": options.app_name, "spark.master": master_url(options.master)}
    return named | with_jars(session_conf(options), gateway.lacking(options.jars))


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs a trace by the root logger when the JVM is gone, which the program tells in one line."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _same_ctrl_c() -> Iterator[None]:
    """Keeps the program's handler of SIGINT, which a SparkContext made in the main thread replaces by its own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _not_started(error: Exception) -> SingerSparkError:
    cause = cut(str(error), 500) or type(error).__name__
    return shortage(error) or ConfigurationError(f"Spark did not start: {cause}; look at `spark` in the config")
