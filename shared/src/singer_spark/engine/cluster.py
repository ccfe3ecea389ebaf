"""Sessions whose executors run on other machines: their settings, and warnings while no executor is
available.

A cluster's executors can't access this machine's disk; `shares_disk` is the only test for that.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def cluster_conf(conf: Mapping[str, str], master: str | None = None) -> dict[str, str]:
    """The settings of a session on a cluster that are not in the user's `conf`."""
    shared = {} if any(name in conf for name in SIZED_BY) else SHARED_CONF
    managed = (
        YARN_CONF
        if master == YARN
        else SECURE_CONF
        if (master or "").startswith(KUBERNETES)
        else {}
    )
    if conf.get("spark.authenticate") == "true":
        managed = {**SECURE_CONF, **managed}
    return {
        name: value
        for name, value in {**CLUSTER_CONF, **shared, **managed}.items()
        if name not in conf
    }


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks the session runs in parallel, once it has all the executors that it
    requests.
    """
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
                "%s: no task has begun on %s for %d s; an executor is starting, or there is no "
                    "core or memory for one: then give it more, or ask for less "
                    "(spark.dynamicAllocation.maxExecutors, spark.executor.memory)",
                context.appName, context.master, waited,
            )  # fmt: skip


def _is_starved(tracker: Any) -> bool:
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return bool(stages) and not any(stage.numActiveTasks for stage in stages if stage is not None)
