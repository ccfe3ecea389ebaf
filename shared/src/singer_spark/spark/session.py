"""The only place where a Spark session is made."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SingerSparkError, wants_traceback
from singer_spark.jvm import command as jvm_command
from singer_spark.jvm import gateway
from singer_spark.jvm.command import with_jars
from singer_spark.jvm.spark_jvm import start_jvm
from singer_spark.process.shortage import shortage
from singer_spark.spark.cluster import LOCAL, is_local, tell_of_waiting
from singer_spark.spark.connect_session import connect
from singer_spark.spark.session_conf import SparkOptions, hadoop_conf, local_cores, remote_conf, session_conf
from singer_spark.spark.session_jvm import grace_seconds, jvm_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkOptions", "begin_jvm", "get_gateway", "get_session", "local_cores", "session_conf", "stop_session"]


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
    start, grace = jvm_start(options), grace_seconds(options)
    if (command := jvm_command.at_once(start)) is not None:
        variables = jvm_command.variables_at_once(start)
        gateway.begin(lambda: start_jvm(command, grace_seconds=grace, variables=variables), start.jars)
    else:
        gateway.begin(lambda: start_jvm(jvm_command.by_spark_submit(start), grace_seconds=grace), ())


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


def get_session(options: SparkOptions) -> SparkSession:
    """Starts the session, or gives the one that runs in this process.

    Raises:
        ConfigurationError: no Java is there, or Spark can't start with these settings.
    """
    begin_jvm(options)
    if not options.remote:
        gateway.import_py4j()
    # Imported while the JVM starts: both take a second.
    from pyspark.sql import SparkSession

    if options.remote:
        return connect(options.remote, remote_conf(options), hadoop_conf(options), options.jars)
    builder = SparkSession.builder.appName(options.app_name).master(options.master or LOCAL)
    for name, value in with_jars(session_conf(options), gateway.lacking(options.jars)).items():
        builder = builder.config(name, value)
    try:
        with gateway.known_to_pyspark(), _same_ctrl_c():
            session = builder.getOrCreate()
    except Exception as error:
        raise _not_started(error) from error
    # Set here and not by the builder: PySpark hands the builder's settings to the JVM's command line, for all to see.
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in hadoop_conf(options).items():
        hadoop.set(name, value)
    if not is_local(options.master):
        tell_of_waiting(session)
    return session


def stop_session() -> None:
    """Stops the session and its JVM, if there is one; another one may be started."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    gateway.close()


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
    cause = " ".join(str(error).split())[:500] or type(error).__name__
    return shortage(error) or ConfigurationError(f"Spark did not start: {cause}; look at `spark` in the config")
