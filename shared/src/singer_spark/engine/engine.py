"""The setting `engine`, which is the same for tap and target: what does the work."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from singer_spark.engine.cluster import is_local
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from singer_spark.core.spark_settings import SparkSettings

AUTO, LOCAL, SPARK = "auto", "local", "spark"


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
    if find_spec("pandas") is None:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            f"{what} by Spark's Python tasks needs pandas where this program is installed: "
            f"pip install '{program}[cluster]', or set engine to local",
        )
