"""The server's catalog entries of tables that are to be read from the log, and why one can't be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

# A change is logged by the partition's identity, and sent by the root's, so the keys of both root
# and leaves matter.
_TABLES = """
WITH keys AS NOT MATERIALIZED (
  SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate, (
      SELECT pg_catalog.json_agg(a.attname ORDER BY a.attname) FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((CAST(i.indkey AS int2[]))[0:i.indnkeyatts
        - 1])
    ) AS columns
  FROM pg_catalog.pg_index i WHERE i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
)
SELECT CAST(c.oid AS text) AS oid, CAST(c.relkind AS text) AS relkind,
  CASE WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits h
    WHERE h.inhparent = c.oid) THEN '1'
    ELSE '0' END AS has_children,
  CAST(pg_catalog.json_agg(pg_catalog.json_build_object(
    'oid', CAST(l.oid AS bigint), 'name', CAST(CAST(l.oid AS regclass) AS text), 'depth', t.depth,
    'logged', l.relkind IN ('r', 'p') AND l.relpersistence = 'p', 'identity', l.relreplident,
    'key', (SELECT k.columns FROM keys k WHERE k.indrelid = l.oid AND k.indimmediate
      AND CASE l.relreplident WHEN 'd' THEN k.indisprimary WHEN 'i' THEN k.indisreplident
        ELSE FALSE END),
    'immediate', (SELECT pg_catalog.json_agg(k.columns) FROM keys k WHERE k.indrelid = l.oid
      AND k.indimmediate),
    'deferred', (SELECT pg_catalog.json_agg(k.columns) FROM keys k WHERE k.indrelid = l.oid
      AND NOT k.indimmediate),
    'attached', (SELECT pg_catalog.json_agg(CAST(h.xmin AS text))
      FROM pg_catalog.pg_partition_ancestors(l.oid) WITH ORDINALITY AS b (oid, n)
      JOIN pg_catalog.pg_inherits h ON h.inhrelid = b.oid
      JOIN pg_catalog.pg_attribute a ON a.attrelid = b.oid AND a.attnum = -1 AND a.xmin <> h.xmin
      WHERE b.n <= t.depth)
    ) ORDER BY t.depth) AS text) AS parts,
  CAST((SELECT pg_catalog.json_agg(a.attname) FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped
      AND CAST(pg_catalog.current_setting('server_version_num') AS int)
        < 180000) AS text) AS generated
FROM pg_catalog.pg_class c
CROSS JOIN LATERAL (
  SELECT c.oid AS relid, 0 AS depth
  UNION ALL SELECT relid, level FROM pg_catalog.pg_partition_tree(c.oid) WHERE isleaf AND level > 0
) t
JOIN pg_catalog.pg_class l ON l.oid = t.relid
WHERE c.oid = pg_catalog.to_regclass({table})
GROUP BY c.oid, c.relkind
"""
_WAY_OUT = "ALTER TABLE {table} REPLICA IDENTITY FULL, or give it a primary key"


@dataclass(frozen=True)
class LogTable:
    """A table in the server's catalog.

    Attributes:
        name: Its full name, quoted.
        key: Key of its records.
        generated: Columns that the server computes and does not log; before version 18, the
            publication lists them all the same.
        partitions: OIDs of its leaf partitions; None: it is not partitioned.
        attached: Partitions that were created as tables of their own: name, and the transactions
            that attached them.
    """

    stream: str
    name: str
    oid: str
    key: tuple[str, ...] = ()
    generated: frozenset[str] = frozenset()
    partitions: frozenset[int] | None = None
    attached: Mapping[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


def log_table(database: Database, plan: StreamPlan) -> LogTable:
    """The table of a stream.

    ConfigurationError: why its changes can't be read from the log, and what to do.
    """
    dialect = database.source.dialect
    name = dialect.table(plan.table)
    found = database.connection.rows(_TABLES.replace("{table}", dialect.string(name)))
    if not found:
        raise ConfigurationError(
            TapCode.LOG_TABLE_UNSUITABLE,
            f"stream {plan.stream}: table {name} is gone; set another replication_method",
        )
    oid, kind, has_children, parts, generated = found[0]
    root, *leaves = json.loads(str(parts))
    for part in (root, *leaves):
        if not part["logged"]:
            raise ConfigurationError(
                TapCode.LOG_TABLE_UNSUITABLE,
                f"stream {plan.stream}: only tables that the log holds can be LOG_BASED, and "
                f"{part['name']} is a view, "
                "foreign, temporary or unlogged table; set another replication_method",
            )
    if kind == "p" and not leaves:
        raise ConfigurationError(
            TapCode.LOG_TABLE_UNSUITABLE,
            f"stream {plan.stream}: table {name} has no rows of its own in the log, as it has no "
            "partition yet; set another replication_method",
        )
    if has_children == "1":
        raise ConfigurationError(
            TapCode.LOG_TABLE_UNSUITABLE,
            f"stream {plan.stream}: other tables inherit from {name}, and their rows are read "
            "with it, while the log has their changes as their own: set another "
            f"replication_method, or take the children out (ALTER TABLE … NO INHERIT {name}) and "
            "run with --full",
        )
    for part in (root, *leaves):
        _check_identity(plan, part)
        _check_same_identity(plan, root, part)
    return LogTable(
        plan.stream,
        name,
        str(oid),
        plan.key_properties,
        frozenset(json.loads(generated or "[]")),
        frozenset(leaf["oid"] for leaf in leaves) if kind == "p" else None,
        {
            leaf["oid"]: (leaf["name"], tuple(leaf["attached"]))
            for leaf in leaves
            if leaf["attached"]
        },
    )


def _check_identity(plan: StreamPlan, part: Mapping[str, Any]) -> None:
    """Refuse a table without identity, of which the server would even refuse updates once it is
    published.
    """
    table, identity, key = part["name"], part["identity"], part["key"] or ()
    way_out = _WAY_OUT.replace("{table}", table)
    if identity == "n" or (identity in ("d", "i") and not key):
        why = (
            "has REPLICA IDENTITY NOTHING"
            if identity == "n"
            else "has no primary key, or a DEFERRABLE one"
        )
        raise ConfigurationError(
            TapCode.LOG_KEY_UNSUITABLE,
            f"stream {plan.stream}: table {table} {why}, so the log can't show which row was "
            f"changed: {way_out}",
        )
    lacking = [] if identity == "f" else [name for name in plan.key_properties if name not in key]
    if lacking:
        raise ConfigurationError(
            TapCode.LOG_KEY_UNSUITABLE,
            f"stream {plan.stream}: the log names old rows of {table} by {', '.join(key)}, and "
            f"its key_properties have {', '.join(lacking)}, too: take that out, or ALTER TABLE "
            f"{table} REPLICA IDENTITY FULL",
        )
    immediate, deferred = (
        [set(each) for each in part[kind] or ()] for kind in ("immediate", "deferred")
    )
    ours = set(plan.key_properties)
    if any(each <= ours for each in deferred) and not any(each <= ours for each in immediate):
        raise ConfigurationError(
            TapCode.LOG_KEY_UNSUITABLE,
            f"stream {plan.stream}: the key {', '.join(plan.key_properties)} of {table} is "
            "DEFERRABLE, so two rows can have it at one time within a transaction: make the "
            "constraint NOT DEFERRABLE, or name other key_properties",
        )


def _check_same_identity(
    plan: StreamPlan, root: Mapping[str, Any], part: Mapping[str, Any]
) -> None:
    """Refuse differing identities, because a partition logs old rows by its own identity, and the
    server sends them by the root's.
    """
    whole = part["identity"] == "f"
    if root["identity"] == part["identity"] and (whole or root["key"] == part["key"]):
        return
    if not whole or root["identity"] == "f":
        raise ConfigurationError(
            TapCode.LOG_KEY_UNSUITABLE,
            f"stream {plan.stream}: partition {part['name']} has another REPLICA IDENTITY than "
            f"{root['name']}, so the log can't show which row was changed: ALTER TABLE … REPLICA "
            f"IDENTITY the same, of {root['name']} and of each partition, then run with --full",
        )
