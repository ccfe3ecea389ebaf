"""What the server's catalog says of tables that are to be read from the log, and why one can't be."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")

# A change is logged as the partition logs it: the keys of all leaves count.
_TABLES = """
SELECT CAST(c.oid AS text) AS oid, CAST(c.relkind AS text) AS relkind, CAST(c.relpersistence AS text) AS persistence,
  CAST(json_agg(json_build_object(
    'name', CAST(CAST(l.oid AS regclass) AS text), 'identity', l.relreplident, 'key', (
      SELECT json_agg(a.attname) FROM pg_catalog.pg_index i
      JOIN pg_catalog.pg_attribute a ON a.attrelid = l.oid AND a.attnum = ANY (i.indkey)
      WHERE i.indrelid = l.oid
        AND CASE l.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE FALSE END
    ))) AS text) AS leaves,
  CAST((SELECT json_agg(a.attname) FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped
      AND CAST(current_setting('server_version_num') AS int) < 180000) AS text) AS generated
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_class l ON l.oid = c.oid AND c.relkind <> 'p' OR c.relkind = 'p' AND l.oid IN (
  SELECT relid FROM pg_catalog.pg_partition_tree(c.oid) WHERE isleaf AND relid <> c.oid
)
WHERE c.oid = to_regclass({table})
GROUP BY c.oid, c.relkind, c.relpersistence
"""
_WAY_OUT = "ALTER TABLE {table} REPLICA IDENTITY FULL, or give it a primary key"


@dataclass(frozen=True)
class Published:
    """A table in the publication.

    Attributes:
        entry: The number of its own entry; empty where the publication has all tables, or those of its schema.
        columns: Those of the list; None where there is no list that is known.
        row_filter: The condition of the rows that are published; empty: all.
    """

    entry: str
    columns: frozenset[str] | None
    row_filter: str


@dataclass(frozen=True)
class LogTable:
    """A table as the server knows it.

    Attributes:
        name: Its full name, quoted.
        oid: Its number.
        generated: Columns that the server computes, and does not log: before version 18, which names them in the
            publication all the same.
        identity_full: The log holds whole old rows.
    """

    stream: str
    name: str
    oid: str
    generated: frozenset[str]
    identity_full: bool


def log_table(database: Database, plan: StreamPlan) -> LogTable:
    """The table of a stream; ConfigurationError: its changes can't be read from the log, and what to do."""
    dialect = database.source.dialect
    name = dialect.table(plan.table)
    found = database.connection.rows(_TABLES.replace("{table}", dialect.string(name)))
    if not found:
        raise ConfigurationError(
            f"stream {plan.stream}: table {name} has no rows of its own in the log (it has no partition yet, or is "
            "gone); set another replication_method"
        )
    oid, kind, persistence, leaves, generated = found[0]
    if kind not in ("r", "p") or persistence != "p":
        raise ConfigurationError(
            f"stream {plan.stream}: only tables that the log holds can be LOG_BASED, and {name} is a view, foreign, "
            "temporary or unlogged table; set another replication_method"
        )
    identities = json.loads(leaves or "[]")
    for leaf in identities:
        _check_identity(plan, leaf)
    return LogTable(
        plan.stream,
        name,
        str(oid),
        frozenset(json.loads(generated or "[]")),
        all(leaf["identity"] == "f" for leaf in identities),
    )


def _check_identity(plan: StreamPlan, leaf: Mapping[str, object]) -> None:
    """Without an identity the server would even refuse updates of a table that is published."""
    table, identity, key = str(leaf["name"]), leaf["identity"], _names(leaf["key"])
    way_out = _WAY_OUT.replace("{table}", table)
    if identity == "n" or (identity in ("d", "i") and not key):
        why = "has REPLICA IDENTITY NOTHING" if identity == "n" else "has no primary key"
        raise ConfigurationError(
            f"stream {plan.stream}: table {table} {why}, so the log can't say which row was changed: {way_out}"
        )
    lacking = [] if identity == "f" else [name for name in plan.key_properties if name not in key]
    if lacking:
        raise ConfigurationError(
            f"stream {plan.stream}: the log names old rows of {table} by {', '.join(key)}, and its key_properties have "
            f"{', '.join(lacking)}, too: take that out, or ALTER TABLE {table} REPLICA IDENTITY FULL"
        )


def _names(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def restricted(plan: StreamPlan, table: LogTable, published: Published) -> StreamPlan:
    """The stream without columns that the log has not, and with the rows alone that it has."""
    has = published.columns
    left_out = [
        each.name for each in plan.columns if each.name in table.generated or (has is not None and each.name not in has)
    ]
    if set(left_out) & set(plan.key_properties):
        raise ConfigurationError(
            f"stream {plan.stream}: the publication leaves out {', '.join(left_out)}, which is part of its key; take "
            "its column list out of the publication, or set another replication_method"
        )
    if left_out:
        logger.warning(
            "stream %s: the publication leaves out column(s) %s, and so does the stream",
            *(plan.stream, ", ".join(left_out)),
        )
    columns = tuple(each for each in plan.columns if each.name not in left_out)
    return replace(plan, columns=columns, where=published.row_filter or None)
