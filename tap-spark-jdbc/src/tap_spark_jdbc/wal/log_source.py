"""The server and the tables whose write-ahead log is read: whether the server's log can be read,
which rights the user lacks, the tables' catalog entries, why a table can't be read from the log,
and where its stream starts.

A log-based stream starts with the rows of its table. After that, its changes come from the log. A
column that is added in between is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.wal.change_log import LogBookmark, Moment, lsn_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

_OLDEST = 130_000
_SERVER = """
SELECT pg_catalog.current_setting('server_version_num') AS version,
  pg_catalog.current_setting('wal_level') AS wal_level,
  CASE WHEN pg_catalog.pg_is_in_recovery() THEN '1' ELSE '0' END AS recovers,
  CAST(pg_catalog.current_database() AS text) AS name,
  CAST(pg_catalog.quote_ident(current_user) AS text) AS role,
  (SELECT CASE WHEN rolsuper OR rolreplication THEN '1' ELSE '0' END FROM pg_catalog.pg_roles
    WHERE rolname = current_user) AS replicates,
  pg_catalog.current_setting('server_encoding') AS encoding
"""
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
_NOW = """
SELECT CAST(pg_catalog.pg_current_wal_insert_lsn() AS text) AS position,
  CAST((SELECT pg_catalog.json_agg(attname) FROM pg_catalog.pg_attribute
  WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped) AS text) AS columns
"""


@dataclass(frozen=True)
class LogServer:
    """A server with logical logging.

    Attributes:
        version: Its version number, like 180001.
        role: The user, quoted.
        replicates: The user has the attribute REPLICATION; a provider's role may allow slots to
            other users, too.
        encoding: The database's encoding.
    """

    version: int
    database: str
    role: str
    replicates: bool
    encoding: str = "UTF8"

    @property
    def way_out(self) -> str:
        """What to run if the server refuses a slot operation; empty: the user's rights can't be the
        reason.
        """
        if self.replicates:
            return ""
        return (
            f"; the user needs the right to use slots: as a superuser run ALTER ROLE {self.role} "
            "REPLICATION (on a managed server, grant the provider's role for it)"
        )


def log_server(database: Database) -> LogServer:
    """The server, if its log can be read; ConfigurationError: why it can't, and what to do."""
    ((version, level, recovers, name, role, replicates, encoding),) = database.connection.rows(
        _SERVER
    )
    if int(version or 0) < _OLDEST:
        why = "needs PostgreSQL 13 or newer; set another replication_method"
    elif recovers == "1":
        why = "reads the primary, and this is a standby: name the primary in jdbc_url"
    elif level != "logical":
        why = (
            f"needs wal_level logical, and the server has {level}: as a superuser run ALTER SYSTEM "
            "SET wal_level = 'logical', then restart the server (on a managed one set its "
            "parameter for it)"
        )
    else:
        return LogServer(int(version or 0), str(name), str(role), replicates == "1", str(encoding))
    raise ConfigurationError(TapCode.LOG_UNSUPPORTED, f"LOG_BASED {why}")


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
    why, unlogged = "", [part["name"] for part in (root, *leaves) if not part["logged"]]
    if unlogged:
        why = (
            f"only tables that the log holds can be LOG_BASED, and {unlogged[0]} is a view, "
            "foreign, temporary or unlogged table; set another replication_method"
        )
    elif kind == "p" and not leaves:
        why = (
            f"table {name} has no rows of its own in the log, as it has no partition yet; set "
            "another replication_method"
        )
    elif has_children == "1":
        why = (
            f"other tables inherit from {name}: their rows are read with it, but the log records "
            "their changes under their own names; set another replication_method, or detach the "
            f"children (ALTER TABLE … NO INHERIT {name}) and run with --full"
        )
    if why:
        raise ConfigurationError(TapCode.LOG_TABLE_UNSUITABLE, f"stream {plan.stream}: {why}")
    for part in (root, *leaves):
        _check_identity(plan, part)
        _check_same_identity(plan, root, part)
    came = (leaf for leaf in leaves if leaf["attached"])
    return LogTable(
        plan.stream,
        name,
        str(oid),
        plan.key_properties,
        frozenset(json.loads(generated or "[]")),
        frozenset(leaf["oid"] for leaf in leaves) if kind == "p" else None,
        {leaf["oid"]: (leaf["name"], tuple(leaf["attached"])) for leaf in came},
    )


def _check_identity(plan: StreamPlan, part: Mapping[str, Any]) -> None:
    """Refuse a table without identity: once published, the server refuses its updates."""
    table, identity, key = part["name"], part["identity"], part["key"] or ()
    lacking = [] if identity == "f" else [name for name in plan.key_properties if name not in key]
    immediate, deferred = (
        any(set(each) <= set(plan.key_properties) for each in part[kind] or ())
        for kind in ("immediate", "deferred")
    )
    if identity == "n" or (identity in ("d", "i") and not key):
        what = (
            "REPLICA IDENTITY NOTHING" if identity == "n" else "no primary key, or a DEFERRABLE one"
        )
        why = (
            f"table {table} has {what}, so the log can't show which row was changed: run ALTER "
            f"TABLE {table} REPLICA IDENTITY FULL, or give it a primary key"
        )
    elif lacking:
        why = (
            f"the log identifies old rows of {table} by {', '.join(key)}, but its key_properties "
            f"also have {', '.join(lacking)}: leave that out, or run ALTER TABLE {table} REPLICA "
            "IDENTITY FULL"
        )
    elif deferred and not immediate:
        why = (
            f"the key {', '.join(plan.key_properties)} of {table} is DEFERRABLE, so two rows can "
            "have it at the same time within a transaction: make the constraint NOT DEFERRABLE, "
            "or name other key_properties"
        )
    else:
        return
    raise ConfigurationError(TapCode.LOG_KEY_UNSUITABLE, f"stream {plan.stream}: {why}")


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


@dataclass
class LogStart:
    """Where a stream continues once its table is read.

    Attributes:
        bookmark: The bookmark without the snapshot in which the table is read.
    """

    bookmark: LogBookmark
    database: Database
    plan: StreamPlan

    def begin(self, moment: str) -> None:
        """Begin reading the table in this snapshot; SourceError: it may show a new column."""
        ((position, columns),) = self.database.connection.rows(
            _NOW.replace("{oid}", self.bookmark.table)
        )
        _refuse_new(self.plan, json.loads(columns or "[]"))
        self.bookmark = replace(self.bookmark, moment=Moment(moment, lsn_of(str(position))))


def check_columns(database: Database, plan: StreamPlan, oid: str, logged: Iterable[str]) -> None:
    """Raise SourceError if the log has a column that was not there when the run began; a dropped
    column does not count.
    """
    if set(logged) <= {each.name for each in plan.table.columns}:
        return
    ((_, columns),) = database.connection.rows(_NOW.replace("{oid}", oid))
    _refuse_new(plan, set(logged).intersection(json.loads(columns or "[]")))


def _refuse_new(plan: StreamPlan, columns: Iterable[str]) -> None:
    if new := sorted(set(columns) - {each.name for each in plan.table.columns}):
        raise SourceError(
            TapCode.LOG_TABLE_CHANGED,
            f"stream {plan.stream}: its table gained column(s) {', '.join(new)} while the run "
            "was starting; run again",
        )
