"""The only module that makes Spark sessions, or just the context that runs tasks.

ConfigurationError: there is no Java, or Spark does not start with these settings.
"""

from __future__ import annotations

import importlib
import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.core.shortage import shortage
from singer_spark.engine import gateway
from singer_spark.engine.cluster import is_local, master_url, warn_while_waiting
from singer_spark.engine.command import with_jars
from singer_spark.engine.connect_session import connect
from singer_spark.engine.kept_jvm import started_or_kept
from singer_spark.engine.session_conf import SparkOptions, hadoop_conf, remote_conf, session_conf
from singer_spark.engine.session_jvm import command_for, grace_seconds, own_variables
from singer_spark.errors import (
    ConfigurationError,
    ResourceError,
    SingerSparkError,
    cut,
    wants_traceback,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_starting = threading.Lock()


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
    """Start the context that runs tasks, or return this process's.

    A session would take twice as long.
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
    # Set here and not in `conf`, which PySpark puts on the JVM's command line, visible to everyone.
    hadoop = context._jsc.hadoopConfiguration()
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
        f"Spark did not start: {cause}; look at `spark` in the config"
    )
