"""Decides which row of each key survives a merge, and what becomes of the others.

The decision uses only keys, cursors and versions, and gives a verdict on each row that does not stay as it is. A row is
identified by its *place*: places of the run's rows count up from 0 in the order in which they came, those of the
table's rows are below 0, lower for older ones.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as F

from singer_spark.singer.metadata_columns import DELETED_AT, TABLE_VERSION, UNCHANGED
from target_spark_lake.columns.spark_columns import column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

# A file has fewer rows than this: the bits of a place above these are the number of its file.
ROW_BITS = 32
PLACE = "_spark_lake_place"
VERDICT = "_spark_lake_verdict"
GONE = "_spark_lake_gone"
# The verdicts; a row without one stays as it is.
DROP, MARK, DELETE, LAST_VALUES = "drop", "mark", "delete", "last values"
# A row that lacks values, and earlier rows of its key, which are dropped and may have them.
FILL, VALUES = "fill", "values"


@dataclass(frozen=True)
class MergeRules:
    """How to decide between the rows of a key.

    Attributes:
        keys: The key's columns.
        cursor: Columns that decide which row is newest, by priority.
        numbers: Those of them that hold numbers as text.
        versions: Whether versions count, before the cursor.
        deletes: Whether the run may contain deletes.
        hard_delete: Whether deleted rows are removed rather than marked.
        activated: Rows of a lower version, or without one, are deleted.
        whole: Whether the table may hold a key twice, so that all its rows are examined.
        stale: Whether table rows with keys that the run did not send are removed; all rows are examined.
        unchanged: Whether rows of the run may name columns whose values they leave unchanged.
        late: Numbers of the run's files whose rows were committed late (places without the row's bits).
    """

    keys: tuple[str, ...]
    cursor: tuple[str, ...]
    numbers: frozenset[str]
    versions: bool
    deletes: bool
    hard_delete: bool
    activated: int | None
    whole: bool
    stale: bool
    late: frozenset[int] = frozenset()
    unchanged: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns used by the decision."""
        partial = [UNCHANGED] if self.unchanged else []
        return tuple(dict.fromkeys([*self.keys, *self.cursor, TABLE_VERSION, DELETED_AT, *partial]))


@dataclass(frozen=True)
class Verdicts:
    """The result of the decision.

    Attributes:
        rows: `PLACE` and `VERDICT` of each row that does not stay as it is, and whether it is `GONE`; persisted, since
            it is read several times.
        by_number: Number of such rows for each verdict, by the part of their places above the row's bits.
        gone: Undeleted table rows that have a verdict only because the source lacks their keys.
    """

    rows: DataFrame
    by_number: Mapping[int, Mapping[str, int]]
    gone: int = 0

    def of_file(self, numbers: Sequence[tuple[int, int]]) -> dict[str, int]:
        """Number of rows per verdict in a file whose places have these numbers (`PlacedFile.numbers`)."""
        found: Counter[str] = Counter()
        for _, number in numbers:
            found.update(self.by_number.get(number, {}))
        return dict(found)

    def count(self, *verdicts: str) -> int:
        """Number of rows with one of these verdicts, or with any."""
        return sum(
            count
            for counts in self.by_number.values()
            for verdict, count in counts.items()
            if not verdicts or verdict in verdicts
        )


def contest(
    of_run: DataFrame, of_table: DataFrame | None, rules: MergeRules, present: DataFrame | None = None
) -> Verdicts:
    """Decide what becomes of each row.

    Args:
        of_run: The run's rows, with their places and the columns of the rules.
        of_table: The table's rows that may be affected; None if there are none.
        rules: How to decide between the rows of a key.
        present: The keys still in the source, in columns like the table's; table rows with other keys, which the run
            did not send either, are deleted. None if they are not known.
    """
    rows = of_run.transform(_as_contenders, rules, of_run=True)
    if of_table is not None:
        table_rows = of_table.transform(_as_contenders, rules, of_run=False)
        if present is not None:
            table_rows = table_rows.transform(_compared, present, rules)
        rows = rows.unionByName(table_rows.transform(_taking_part, rows, rules, may_be_gone=present is not None))
    if rules.cursor and (rules.deletes or rules.late):
        rows = rows.transform(_inherit_age, rules)
    judged = rows.transform(_judge, rules).persist(StorageLevel.MEMORY_AND_DISK)
    number = F.shiftright(PLACE, ROW_BITS).alias("number")
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        sums = F.count("*").alias("rows"), F.count_if(GONE).alias("gone")
        counts = judged.groupBy(number, VERDICT).agg(*sums).collect()
    by_number: dict[int, dict[str, int]] = {}
    for row in counts:
        by_number.setdefault(row["number"], {})[row[VERDICT]] = row["rows"]
    return Verdicts(judged, by_number, sum(row["gone"] for row in counts))


def _as_contenders(rows: DataFrame, rules: MergeRules, *, of_run: bool) -> DataFrame:
    """Reduce rows to the columns of the decision, under names that no user's column has."""
    has_mark = F.col(DELETED_AT).isNotNull()
    return rows.select(
        *(column(name).alias(alias) for name, alias in zip(rules.keys, _key_names(rules), strict=True)),
        *(_age(name, rules).alias(alias) for name, alias in zip(rules.cursor, _cursor_names(rules), strict=True)),
        (F.col(TABLE_VERSION) if rules.versions else F.lit(None).cast("bigint")).alias("version"),
        (_below(rules) if rules.activated is not None else F.lit(False)).alias("below"),
        (has_mark if of_run else F.lit(False)).alias("is_delete"),
        has_mark.alias("is_marked"),
        (F.col(UNCHANGED).isNotNull() if of_run and rules.unchanged else F.lit(False)).alias("partial"),
        F.lit(False).alias("gone"),
        PLACE,
    )


def _compared(rows: DataFrame, present: DataFrame, rules: MergeRules) -> DataFrame:
    """Mark the table's rows with keys that the source lacks."""
    keys = _key_names(rules)
    has_key = reduce(and_, (F.col(key).isNotNull() for key in keys))
    there = [column(name).alias(key) for name, key in zip(rules.keys, keys, strict=True)]
    known = present.select(*there).distinct().withColumn("there", F.lit(True))
    gone = F.col("there").isNull() & has_key
    return rows.join(known, keys, "left").withColumn("gone", gone).select(*rows.columns)


def _taking_part(rows: DataFrame, of_run: DataFrame, rules: MergeRules, *, may_be_gone: bool) -> DataFrame:
    """Select the table's rows with keys sent by the run, or deleted by an activated version or the source; or all."""
    if rules.stale or rules.whole:
        return rows
    keys = _key_names(rules)
    sent = of_run.select(*keys)
    if rules.activated is None and not may_be_gone:
        return rows.join(sent, keys, "left_semi").select(*rows.columns)
    outdated = (F.col("below") | F.col("gone")) & (F.lit(rules.hard_delete) | ~F.col("is_marked"))
    met = rows.join(sent.distinct().withColumn("sent", F.lit(True)), keys, "left")
    return met.where(F.col("sent").isNotNull() | outdated).select(*rows.columns)


def _inherit_age(rows: DataFrame, rules: MergeRules) -> DataFrame:
    """Make certain rows as new as the newest row of their key that came before them.

    These are deletes without a cursor, and rows committed late: their database holds no newer ones.
    """
    cursor = _cursor_names(rules)
    before = Window.partitionBy(*_key_names(rules)).orderBy(PLACE).rowsBetween(Window.unboundedPreceding, -1)
    blind = F.col("is_delete") & reduce(and_, (F.col(name).isNull() for name in cursor))
    is_late = F.shiftright(PLACE, ROW_BITS).isin(*rules.late) & (F.col("newest") > F.struct("version", *cursor))
    takes = (blind | is_late) & F.col("version").eqNullSafe(F.col("newest.version"))
    known = rows.withColumn("newest", F.max(F.struct("version", *cursor)).over(before))
    taken = {name: F.when(takes, F.col(f"newest.{name}")).otherwise(F.col(name)) for name in cursor}
    return known.withColumns(taken).drop("newest")


def _judge(rows: DataFrame, rules: MergeRules) -> DataFrame:
    """The `PLACE`, `VERDICT` and `GONE` of each row that does not stay as it is."""
    same_key = Window.partitionBy(*_key_names(rules))
    # In the order of structs, NULL is the smallest.
    age = ["version", *_cursor_names(rules), PLACE]
    best = F.max(F.struct(*age, "is_delete", "partial")).over(same_key)
    place, is_delete, below = F.col(PLACE), F.col("is_delete"), F.col("below")
    # Rows without a key, from before the table had one, don't replace each other.
    keyless = reduce(or_, (F.col(key).isNull() for key in _key_names(rules)))
    wins = keyless | (place == F.col(f"best.{PLACE}"))
    unseen = F.col("last") < 0
    leaves = below | (F.col("gone") & unseen)
    removed = (is_delete | leaves) if rules.hard_delete else F.lit(False)
    if rules.stale:
        removed = removed | unseen
    verdict = F.when(~wins | removed, DROP).when(is_delete, DELETE).when(leaves & ~F.col("is_marked"), MARK)
    # A row removed for another reason is not a detected delete.
    only_gone = wins & F.col("gone") & unseen & ~F.col("is_marked") & ~below & ~F.lit(rules.stale)
    marks_deletes = rules.deletes and not rules.hard_delete
    came_before = ~is_delete & (place < F.col(f"best.{PLACE}"))
    if marks_deletes:
        remembered = F.col("best.is_delete") & (place == F.col(f"before.{PLACE}"))
        verdict = F.when(remembered, LAST_VALUES).otherwise(verdict)
    if rules.unchanged:
        lacks = F.col("best.partial") | (F.col("best.is_delete") & F.col("any_partial") & F.lit(marks_deletes))
        fills = lacks & wins & ~removed & ~leaves
        verdict = F.when(fills, FILL).when(lacks & ~wins & came_before, VALUES).otherwise(verdict)
    rows = rows.withColumn("best", best)
    rows = rows.withColumn("last", F.max(PLACE).over(same_key))
    if rules.unchanged:
        rows = rows.withColumn("any_partial", F.max("partial").over(same_key))
    if marks_deletes:
        rows = rows.withColumn("before", F.max(F.when(came_before, F.struct(*age))).over(same_key))
    return rows.select(PLACE, verdict.alias(VERDICT), only_gone.alias(GONE)).where(F.col(VERDICT).isNotNull())


def _age(name: str, rules: MergeRules) -> Column:
    # As text, 9 is greater than 10. A number with more digits than this raises an error.
    return column(name).cast("decimal(38,18)") if name in rules.numbers else column(name)


def _below(rules: MergeRules) -> Column:
    return F.coalesce(F.col(TABLE_VERSION) < F.lit(rules.activated), F.lit(True))


def _key_names(rules: MergeRules) -> list[str]:
    return [f"key{number}" for number in range(len(rules.keys))]


def _cursor_names(rules: MergeRules) -> list[str]:
    return [f"cursor{number}" for number in range(len(rules.cursor))]
