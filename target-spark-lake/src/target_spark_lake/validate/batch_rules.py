"""Rules beyond types for the rows of a typed file, which decide whether it may be taken as it is.

Columns of the lake's own types hold no values of wrong types. The rest is proven by the footer, or
by reading single columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from target_spark_lake.validate.bulk_check import ValueCheck

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from singer_spark.core.lake_type import Struct
    from target_spark_lake.table.table_index import ColumnRange


@dataclass(frozen=True)
class TypedRules:
    """The rules of one stream.

    Attributes:
        columns: The columns that have rules.
        moments: Columns with dates and times, nested ones too, which must be in the years 1 to
            9999.
    """

    columns: Mapping[str, ValueCheck]
    moments: frozenset[str]

    @property
    def provable(self) -> frozenset[str]:
        """The columns whose rules a footer may prove."""
        return frozenset(
            name for name, check in self.columns.items() if check.present or check.limits
        )

    def unproven(self, known: Mapping[str, ColumnRange]) -> dict[str, ValueCheck]:
        """The rules that a footer's statistics of the `provable` columns do not prove, to be
        checked on the values.
        """
        left = {name: _unproven(check, known.get(name)) for name, check in self.columns.items()}
        return {name: check for name, check in left.items() if check.is_needed}


def _unproven(check: ValueCheck, known: ColumnRange | None) -> ValueCheck:
    if known is None:
        return check
    limits = tuple(
        limit for limit in check.limits if not limit.holds_between(known.low, known.high)
    )
    return replace(check, present=check.present and known.nulls != 0, limits=limits)


def typed_rules(
    columns: Struct,
    keys: Iterable[str],
    check: ValueCheck | None,
    *,
    validate: bool,
    has_json_texts: bool = False,
) -> TypedRules | None:
    """The rules of a stream; None if its records must be checked one by one.

    The `keys` must have a value, whatever the schema says. Without `validate`, the lake's columns
    must only be able to hold the values. `has_json_texts` says whether texts of some columns get
    quotes.
    """
    if has_json_texts:
        return None
    checks: dict[str, ValueCheck] = {}
    if validate:
        if check is None or check.free:
            return None
        checks = {name: each for name, each in check.parts.items() if each.is_needed}
    for name in keys:
        checks[name] = replace(checks.get(name, ValueCheck(columns.types[name])), present=True)
    moments = (
        each.name for each in columns if "date" in str(each.type) or "timestamp" in str(each.type)
    )
    return TypedRules(checks, frozenset(moments))


def dated(metadata: FileMetaData, indexes: Iterable[int]) -> bool:
    """Whether a footer proves that all dates and times in these columns are in the years 1 to
    9999.
    """
    for group in range(metadata.num_row_groups):
        for index in indexes:
            found = metadata.row_group(group).column(index).statistics
            if found is None or not (
                found.has_min_max or (found.has_null_count and found.num_values == 0)
            ):
                return False
            try:
                _ = (found.min, found.max)
            except (OverflowError, ValueError):
                return False
    return True
