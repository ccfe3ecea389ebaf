"""Plans of tables that no database has: what is said of them, and what comes of it."""

from __future__ import annotations

import copy
from typing import Any

from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.plan.catalog import catalog_of
from tap_spark_jdbc.plan.stream_plan import StreamPlan, plan_streams

POSTGRESQL, SQLITE = known_dialects()["postgresql"], known_dialects()["sqlite"]
COLUMNS = {
    "id": "bigint",
    "Region": "text",
    "updated_at": "timestamp without time zone",
    "seen_at": "timestamp with time zone",
    "cost": "numeric(12,2)",
    "tags": "text[]",
}


def table(
    name: str = "orders",
    schema: str | None = "public",
    columns: dict[str, str] = COLUMNS,
    **more: Any,
) -> Table:
    read = tuple(
        POSTGRESQL.column(each, kind, nullable=each != "id") for each, kind in columns.items()
    )
    more = {
        "primary_key": ("id",) if "id" in columns else (),
        "indexed": frozenset({"id", "updated_at"}),
        **more,
    }
    return Table(schema, name, read, **more)


def settings_of(**config: Any) -> TapSettings:
    return TapSettings.from_config({"jdbc_url": "jdbc:postgresql://localhost/shop", **config})


def plans(*tables: Table, catalog: dict | None = None, **config: Any) -> dict[str, StreamPlan]:
    found = plan_streams(tables or (table(),), settings_of(**config), catalog, text_moments=False)
    return {plan.stream: plan for plan in found}


def plan(*, catalog: dict | None = None, **config: Any) -> StreamPlan:
    return plans(catalog=catalog, **config)["public-orders"]


def key(found: StreamPlan) -> tuple[str, str | None]:
    return found.replication_method, found.replication_key and found.replication_key.column.name


def catalog(
    *tables: Table, root: dict | None = None, deselect: tuple[str, ...] = (), **config: Any
) -> dict[str, Any]:
    """The discovered catalog as a user edited it: `root` overrides each stream's metadata, and None
    removes a value.
    """
    made = copy.deepcopy(catalog_of(tables or (table(),), settings_of(**config)))
    for stream in made["streams"]:
        for each in stream["metadata"]:
            if not each["breadcrumb"]:
                each["metadata"] |= root or {}
            elif each["breadcrumb"][1] in deselect:
                each["metadata"]["selected"] = False
    return made
