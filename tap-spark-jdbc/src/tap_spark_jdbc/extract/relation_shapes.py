"""Whether DDL has changed the relations that a stream is read from, by comparing the catalogs
(PostgreSQL).

A snapshot does not protect against DDL: a table that was truncated or rewritten looks empty in it.
Queried within the snapshot, the catalogs show what the table was; queried outside of it, what the
table is now.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

# The tables and views that a statement names, and those behind them: the relations that it locks
# when it is parsed.
_NAMED = """
SELECT DISTINCT c.oid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p',
  'v', 'm', 'f')
  AND c.relnamespace <> CAST('pg_catalog' AS regnamespace)
    AND NOT EXISTS (SELECT 1 {source} LIMIT 0)
"""
_LISTED = "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = ANY (CAST('{{oids}}' AS oid[]))"
_SHAPES = """
WITH RECURSIVE root AS ({roots}), tree AS (
  SELECT root.oid FROM root
  UNION
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT CAST(c.oid AS text), CASE WHEN c.oid IN (SELECT root.oid FROM root) THEN 'root' ELSE '' END,
  CAST(n.nspname AS text) || '.' || CAST(c.relname AS text), CAST(c.relfilenode AS text),
  CASE WHEN c.relispartition THEN 'partition' ELSE '' END,
  CASE WHEN c.relispartition THEN NULL ELSE (
    SELECT CAST(pg_catalog.json_object_agg(
      a.attnum, pg_catalog.json_build_array(a.attname, CAST(a.atttypid AS text),
        a.atttypmod)) AS text)
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
      AND NOT a.attisdropped) END,
  (SELECT pg_catalog.string_agg(CAST(r.xmin AS text), ',' ORDER BY r.oid)
    FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_KNOWN = (
    "SELECT MIN(CAST(oid AS text)) FROM pg_catalog.pg_class WHERE oid = ANY (CAST('{{oids}}' "
    "AS oid[]))"
)


@dataclass(frozen=True)
class _Shape:
    """The shape of one table or view, named with its schema.

    Columns are name, type and modifier by number.

    A root is named by the statement, directly or through a view. Its `file` changes when all rows
    are rewritten or discarded. A partition has its parent's columns and name. The rule is the
    version of a view's query.
    """

    root: bool
    name: str
    file: str | None
    partition: bool
    columns: Mapping[str, list[str]]
    rule: str | None

    def change(self, now: _Shape | None) -> str | None:
        """A description of what has changed, if anything."""
        if now is None or now.partition != self.partition:
            return "was dropped, attached or detached"
        if now.file != self.file:
            return "was emptied or rewritten (TRUNCATE, ALTER TABLE, REFRESH, VACUUM FULL, …)"
        if now.rule != self.rule:
            return "was redefined"
        if not self.partition and now.name != self.name:
            return f"was renamed to {now.name}"
        # An added column does no harm: statements name their columns.
        changed = [
            each[0] for number, each in self.columns.items() if now.columns.get(number) != each
        ]
        return f"has changed its column {changed[0]!r}" if changed and not self.partition else None


@dataclass(frozen=True)
class RelationShapes:
    """The shapes of all relations that a statement reads, as they were in a snapshot."""

    roots: str
    shapes: Mapping[str, _Shape]

    @classmethod
    def of(cls, within: JdbcConnection, source: str) -> RelationShapes:
        """The shapes seen by a connection within the snapshot, given `FROM` and `WHERE` of the
        statement.
        """
        shapes = _shapes(within, _NAMED.replace("{source}", source))
        return cls(",".join(oid for oid, shape in shapes.items() if shape.root), shapes)

    @cached_property
    def digest(self) -> str:
        """The same text as long as no relation was dropped, replaced, emptied, rewritten or
        altered.
        """
        shapes = sorted((oid, astuple(shape)) for oid, shape in self.shapes.items())
        return hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()[:32]

    def change(self, now: JdbcConnection, within: JdbcConnection) -> str | None:
        """A description of what has changed since.

        `now` sees the present, `within` is in the snapshot.
        """
        present = _shapes(now, _LISTED.replace("{oids}", self.roots))
        for oid, shape in self.shapes.items():
            if change := shape.change(present.get(oid)):
                return f"{shape.name} {change}"
        added = ",".join(oid for oid in present if oid not in self.shapes)
        # A partition created since has no rows that are visible in the snapshot.
        known = within.rows(_KNOWN.replace("{oids}", added))[0][0] if added else None
        return None if known is None else f"{present[known].name} was attached"


def _shapes(connection: JdbcConnection, roots: str) -> Mapping[str, _Shape]:
    """The shapes of all relations below those of a query, by object identifier."""
    return {
        str(oid): _Shape(
            bool(root), str(name), file, bool(partition), json.loads(columns or "{}"), rule
        )
        for oid, root, name, file, partition, columns, rule in connection.rows(
            _SHAPES.replace("{roots}", roots)
        )
    }
