"""Comparison of two sets of rows in Spark: first checksum sums per slice, then differing slices by key.

Both sides become rows of the same few columns, the source's counting up and the lake's counting down, so that one
aggregation finds what does not balance. Only the keys to be named leave Spark.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from singer_spark.compared_source import FIRM, ROW
from singer_spark.singer.metadata_columns import DELETED_AT
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.formats.merging.rules import PLACE
from target_spark_lake.verify.verify_report import DIFFERENT, EXTRA, KINDS, MISSING

if TYPE_CHECKING:
    from target_spark_lake.verify.compared_columns import ComparedColumn

# What to do with the groups that differ, given the counts of all.
Use = Callable[[DataFrame, Mapping[str, int]], None]
SLICES = 1024
# At most so many keys of each kind are named.
NAMED_KEYS = 100
# For rows without a key, which are shown themselves.
SHOWN_CHARACTERS = 500
_COUNTS = (*KINDS, "source_rows", "lake_rows", "not_compared", "older_versions")
# To the microsecond, in the same form on both sides.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# The sums: firm rows of the source, its other rows, rows of the lake, and what remains of all checksums.
_SUMS = [f"sum({name}) AS {name}" for name in ("firm", "loose", "lake", "high", "low")]
_EVEN = "lake = firm + loose AND high = 0 AND low = 0"
# A group is a key. If it has only loose rows, or does not balance with a loose row in it, it is left to the next run.
_OF_KEY = {
    MISSING: f"IF({_EVEN} OR loose > 0, 0, greatest(firm - lake, 0))",
    EXTRA: f"IF({_EVEN} OR loose > 0, 0, greatest(lake - firm, 0))",
    DIFFERENT: f"IF(NOT ({_EVEN}) AND loose = 0 AND lake = firm, firm, 0)",
    "source_rows": f"IF({_EVEN} OR loose = 0, firm + loose, 0)",
    "lake_rows": f"IF({_EVEN} OR loose = 0, lake, 0)",
    "not_compared": f"IF({_EVEN} OR loose = 0, 0, firm + loose)",
    "older_versions": "0",
}
# A group is a row's whole content.
_OF_ROW = {
    MISSING: "greatest(firm - lake, 0)",
    EXTRA: "greatest(lake - firm - loose, 0)",
    DIFFERENT: "0",
    "source_rows": "firm + least(loose, greatest(lake - firm, 0))",
    "lake_rows": "lake",
    "not_compared": "loose - least(loose, greatest(lake - firm, 0))",
    "older_versions": "0",
}
# The same if older versions stay; without a key they can't be distinguished from surplus rows.
_OF_VERSION = {
    **_OF_ROW,
    EXTRA: "0",
    "lake_rows": "least(lake, firm + loose)",
    "older_versions": "greatest(lake - firm - loose, 0)",
}


@dataclass(frozen=True)
class Found:
    """The result of a comparison.

    Attributes:
        counts: Rows by `KINDS`, and `source_rows`, `lake_rows`, `not_compared` (sent by the next run), and
            `older_versions` (of a table without a key).
        keys: The first keys by `KINDS`: values of the key's column, lists of values if it has several, or texts of
            whole rows if there is no key.
    """

    counts: Mapping[str, int]
    keys: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Comparison:
    """How two sides are compared; if the lake keeps older versions, only the last received row of a key counts."""

    columns: tuple[ComparedColumn, ...]
    keys: tuple[str, ...]
    keeps_versions: bool

    def of(
        self,
        source: DataFrame,
        lake: DataFrame,
        use: Use | None = None,
        even: Mapping[str, int] | None = None,
    ) -> Found:
        """Compare `SourceRows.rows` with the table's columns, `PLACE` and, if the table has it, `DELETED_AT`.

        If they differ, `use` is called with the differing groups, their numbers of `firm` rows and of rows by `KINDS`,
        and with all counts; the groups are only kept during that call. If both sides are only a part, `even` has the
        counts of the others, which agree.
        """
        both = self._of_source(source).unionByName(self._of_lake(lake))
        counts = dict.fromkeys(_COUNTS, 0)
        if even is not None:
            return self._by_group(both, {**counts, **even}, use)
        sums = both.groupBy(self._slice().alias("slice")).agg(*map(F.expr, _SUMS))
        slices = collected(sums.selectExpr("slice", "lake", f"{_EVEN} AS even"))
        uneven = [each["slice"] for each in slices if not each["even"]]
        agree = sum(each["lake"] for each in slices if each["even"])
        counts |= {"source_rows": agree, "lake_rows": agree}
        if not uneven:
            return Found(counts, dict.fromkeys(KINDS, ()))
        rows = both if len(uneven) == len(slices) else both.where(self._slice().isin(uneven))
        return self._by_group(rows, counts, use)

    def lake_rows(self, lake: DataFrame, checksum: Callable[[str], Column]) -> DataFrame:
        """The lake's current rows: `group`, and a `checksum` of a struct of the compared columns."""
        return self._current(lake, checksum).select(*self.group, "checksum")

    def firm_rows(self, source: DataFrame) -> DataFrame:
        """The rows that the lake must have: `ROW`, with the columns of their groups."""
        values = [each.of_source().alias(each.name) for each in self.columns]
        firm = source.where(FIRM).select(F.struct(*values).alias("row"), F.col(ROW).alias("whole"))
        return firm.select(*self._groups(), F.col("whole").alias(ROW))

    def _by_group(self, rows: DataFrame, counts: dict[str, int], use: Use | None) -> Found:
        rule = _OF_KEY if self.keys else _OF_VERSION if self.keeps_versions else _OF_ROW
        groups = rows.groupBy(*self.group).agg(*map(F.expr, _SUMS), F.max("shown").alias("shown"))
        verdicts = (F.expr(f"{rule[name]} AS {name}") for name in _COUNTS)
        judged = groups.select(*self.group, "shown", "firm", *verdicts)
        judged = judged.persist(StorageLevel.DISK_ONLY)
        try:
            (sums,) = collected(judged.agg(*(F.expr(f"sum({name}) AS {name}") for name in _COUNTS)))
            keys = {kind: self._named(judged.where(F.col(kind) > 0)) if sums[kind] else () for kind in KINDS}
            counts = {name: counts[name] + (sums[name] or 0) for name in _COUNTS}
            if use is not None and any(counts[kind] for kind in KINDS):
                use(judged.where(F.expr(" OR ".join(f"{kind} > 0" for kind in KINDS))), counts)
        finally:
            judged.unpersist()
        return Found(counts, keys)

    def _named(self, groups: DataFrame) -> tuple[Any, ...]:
        first = groups.orderBy(*(self.group if self.keys else ["shown"])).limit(NAMED_KEYS)
        if not self.keys:
            return tuple(row["shown"] for row in collected(first.select("shown")))
        values = F.to_json(F.struct(*self.group), _JSON).alias("key")
        # Decimals keep their digits as printed.
        found = [list(json.loads(row["key"], parse_float=str).values()) for row in collected(first.select(values))]
        return tuple(key[0] if len(key) == 1 else key for key in found)

    @property
    def group(self) -> list[str]:
        """The columns that identify a group: the key's, or hashes of a row's whole content."""
        return [f"key_{number}" for number in range(len(self.keys))] or ["hash_0", "hash_1"]

    def _groups(self) -> list[Column]:
        """The columns of `group`, from the struct `row` of the compared columns."""
        text = F.to_json("row", _JSON)
        values = [column(name, "row") for name in self.keys] or [F.xxhash64(text), F.hash(text)]
        return [value.alias(name) for value, name in zip(values, self.group, strict=True)]

    def _slice(self) -> Column:
        return F.pmod(F.xxhash64(*self.group), F.lit(SLICES)).cast("int")

    def _of_source(self, rows: DataFrame) -> DataFrame:
        values = [each.of_source().alias(each.name) for each in self.columns]
        firm = F.when(F.col(FIRM), 1).otherwise(0).cast("bigint").alias("firm")
        hashed = rows.select(F.struct(*values).alias("row"), firm).transform(self._hashed(_checksum, "firm"))
        return hashed.select(
            *self.group, "shown", "firm", (1 - F.col("firm")).alias("loose"), _number("lake", 0), *_parts(1)
        )

    def _of_lake(self, rows: DataFrame) -> DataFrame:
        counted = _number("firm", 0), _number("loose", 0), _number("lake", 1)
        return self._current(rows, _checksum).select(*self.group, "shown", *counted, *_parts(-1))

    def _current(self, rows: DataFrame, checksum: Callable[[str], Column]) -> DataFrame:
        marked = column(DELETED_AT).isNotNull() if DELETED_AT in rows.columns else F.lit(False)
        values = [each.of_lake().alias(each.name) for each in self.columns]
        lake = rows.select(F.struct(*values).alias("row"), marked.alias("marked"), F.col(PLACE).alias("place"))
        hashed = lake.transform(self._hashed(checksum, "marked", "place"))
        if self.keeps_versions and self.keys:
            last = [F.max_by(name, "place").alias(name) for name in ("checksum", "marked")]
            hashed = hashed.groupBy(*self.group, "shown").agg(*last)
        return hashed.where(~F.col("marked"))

    def _hashed(self, checksum: Callable[[str], Column], *carried: str) -> Callable[[DataFrame], DataFrame]:
        """Select the group, the row's checksum, the text shown for a row without a key, and further columns."""
        shown = F.lit(None).cast("string")
        if not self.keys:
            shown = F.substring(F.to_json("row", _JSON), 1, SHOWN_CHARACTERS)
        summed = checksum("row").alias("checksum")
        return lambda rows: rows.select(*self._groups(), summed, shown.alias("shown"), *carried)


def collected(few: DataFrame) -> Sequence[Any]:
    """The rows of a small result."""
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        return few.collect()


def _checksum(row: str) -> Column:
    return F.xxhash64(F.to_json(row, _JSON))


def _number(name: str, value: int) -> Column:
    return F.lit(value).cast("bigint").alias(name)


def _parts(sign: int) -> list[Column]:
    """The halves of the checksum: a sum of whole ones would exceed 64 bits."""
    high = F.shiftright("checksum", 32)
    low = F.col("checksum").bitwiseAND(F.lit(0xFFFFFFFF))
    return [(each * F.lit(sign)).alias(name) for name, each in (("high", high), ("low", low))]
