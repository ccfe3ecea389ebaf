"""The driver's class inside Spark's JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.source.jdbc_errors import reason
from tap_spark_jdbc.source.jdbc_source import JdbcSource


def loaded_driver(gateway: Any, source: JdbcSource) -> Any:
    """An instance of the driver; `DriverManager` alone would not see one that came with `spark.jars`.

    Raises:
        ConfigurationError: it does not exist, or is not a driver.
    """
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        return _instance(gateway, source.driver, loader)
    except Py4JJavaError as error:
        # A running session only has the drivers that it was started with.
        if not source.jars or not hasattr(loader, "addURL"):
            raise _unknown_driver(source, error) from error
    for jar in source.jars:
        loader.addURL(jvm.java.net.URL(Path(jar).as_uri()))
    try:
        return _instance(gateway, source.driver, loader)
    except Py4JJavaError as error:
        raise _unknown_driver(source, error) from error


def _instance(gateway: Any, name: str, loader: Any) -> Any:
    java = gateway.jvm.java.lang
    constructor = java.Class.forName(name, True, loader).getDeclaredConstructor(gateway.new_array(java.Class, 0))
    return constructor.newInstance(gateway.new_array(java.Object, 0))


def _unknown_driver(source: JdbcSource, error: Py4JJavaError) -> ConfigurationError:
    return ConfigurationError(
        f"driver {source.driver} can't be loaded ({reason(error)}); check `driver`, `driver_package` and `driver_jars`"
    )
