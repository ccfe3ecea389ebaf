"""What a stream's rows are read from, as the catalogs describe it: whether DDL has changed it since (PostgreSQL).

A snapshot does not outlive what is done to a table beside its rows: emptied or written anew, the table looks empty to
it. The catalogs, asked within the snapshot, say what the table was; asked outside of it, what the table is now.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

# The tables and views that a statement names, and those behind them: what it has locked when it is parsed.
_NAMED = """
SELECT string_agg(DISTINCT CAST(c.oid AS text), ',') FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND c.relnamespace <> CAST('pg_catalog' AS regnamespace) AND NOT EXISTS (SELECT 1 {source} LIMIT 0)
"""
_SHAPES = """
WITH RECURSIVE tree AS (
  SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = ANY (CAST('{{oids}}' AS oid[]))
  UNION
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT CAST(c.oid AS text), CAST(n.nspname AS text) || '.' || CAST(c.relname AS text), CAST(c.relfilenode AS text),
  CASE WHEN c.relispartition THEN 'partition' ELSE '' END,
  CASE WHEN c.relispartition THEN NULL ELSE (
    SELECT CAST(json_object_agg(a.attnum, json_build_array(a.attname, CAST(a.atttypid AS text), a.atttypmod)) AS text)
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) END,
  (SELECT string_agg(CAST(r.xmin AS text), ',' ORDER BY r.oid) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_KNOWN = "SELECT MIN(CAST(oid AS text)) FROM pg_catalog.pg_class WHERE oid = ANY (CAST('{{oids}}' AS oid[]))"


@dataclass(frozen=True)
class _Shape:
    """Of one table or view, named with its schema; columns are name, type and modifier by number.

    Its `file` is another one once rows were written anew or thrown away. A partition goes by its parent's columns and
    name. The rule is the version of what a view selects.
    """

    name: str
    file: str | None
    partition: bool
    columns: Mapping[str, list[str]]
    rule: str | None

    def change(self, now: _Shape | None) -> str | None:
        """What has become of it."""
        if now is None or now.partition != self.partition:
            return "was dropped, attached or detached"
        if now.file != self.file:
            return "was emptied or written anew (TRUNCATE, ALTER TABLE, REFRESH, VACUUM FULL, …)"
        if now.rule != self.rule:
            return "was defined anew"
        if not self.partition and now.name != self.name:
            return f"was renamed to {now.name}"
        # A column that was added does no harm: the statements name theirs.
        changed = [each[0] for number, each in self.columns.items() if now.columns.get(number) != each]
        return f"has changed its column {changed[0]!r}" if changed and not self.partition else None


@dataclass(frozen=True)
class RelationShapes:
    """All that a statement reads, as it was in a snapshot."""

    roots: str
    shapes: Mapping[str, _Shape]

    @classmethod
    def of(cls, within: JdbcConnection, source: str) -> RelationShapes:
        """What a connection that asks within the snapshot shows, given `FROM` and `WHERE` of the statement."""
        roots = within.rows(_NAMED.replace("{source}", source))[0][0] or ""
        return cls(roots, _shapes(within, roots))

    def change(self, now: JdbcConnection, within: JdbcConnection) -> str | None:
        """What was changed since, in words, by a connection that sees the present and one within the snapshot."""
        present = _shapes(now, self.roots)
        for oid, shape in self.shapes.items():
            if told := shape.change(present.get(oid)):
                return f"{shape.name} {told}"
        added = ",".join(oid for oid in present if oid not in self.shapes)
        # One that was made since has no row that the snapshot shows.
        known = within.rows(_KNOWN.replace("{oids}", added))[0][0] if added else None
        return None if known is None else f"{present[known].name} was attached"


def _shapes(connection: JdbcConnection, roots: str) -> Mapping[str, _Shape]:
    return {
        str(oid): _Shape(str(name), file, bool(partition), json.loads(columns or "{}"), rule)
        for oid, name, file, partition, columns, rule in connection.rows(_SHAPES.replace("{oids}", roots))
    }
