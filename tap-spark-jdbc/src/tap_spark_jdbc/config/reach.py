"""Databases that a cluster's executors can't reach, whatever the network: those local to this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from singer_spark.spark.cluster import is_local

# Files, or databases within a JVM; Derby, H2 and HSQLDB also have servers.
_OF_THIS_MACHINE = re.compile(r"jdbc:(sqlite:|duckdb:|derby:(?!//)|h2:(?!tcp:|ssl:)|hsqldb:(?!hsqls?:|https?:))")


def reach_problems(jdbc_url: object, spark: Mapping[str, Any]) -> list[str]:
    """Problems with the database for the executors configured in `spark`."""
    remote, master = spark.get("remote"), spark.get("master")
    url = str(jdbc_url)
    if not _OF_THIS_MACHINE.match(url) or not (remote or not is_local(master)):
        return []
    shown = re.split(r"[?;]", url, maxsplit=1)[0]
    where = "spark.remote" if remote else "spark.master"
    return [
        f"{where}: {shown} is a database of this machine alone, which executors elsewhere don't reach; use local[*]"
    ]
