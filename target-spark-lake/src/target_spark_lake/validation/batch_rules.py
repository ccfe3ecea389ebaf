"""What the rows of a typed file must keep to beyond their types, so that it may be taken as it is.

Columns of the lake's own types hold no value of a wrong type. What is left a footer proves, or a look
at single columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from target_spark_lake.validation.bulk_check import ValueCheck

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from target_spark_lake.columns.lake_type import Struct
    from target_spark_lake.tables.file_statistics import ColumnRange


@dataclass(frozen=True)
class TypedRules:
    """The rules of one stream.

    Attributes:
        columns: Those of which something is asked.
        moments: Columns of dates and times, also inside: from year 1 to 9999.
    """

    columns: Mapping[str, ValueCheck]
    moments: frozenset[str]

    @property
    def questioned(self) -> frozenset[str]:
        """The columns of which a footer may prove something that is asked."""
        return frozenset(name for name, check in self.columns.items() if check.present or check.limits)

    def unproven(self, known: Mapping[str, ColumnRange]) -> dict[str, ValueCheck]:
        """What a file's footer leaves open, to be asked of its columns: of none where all is proven.

        Args:
            known: What the footer tells of the `questioned` columns.
        """
        left = {name: _unproven(check, known.get(name)) for name, check in self.columns.items()}
        return {name: check for name, check in left.items() if check.asks}


def _unproven(check: ValueCheck, known: ColumnRange | None) -> ValueCheck:
    if known is None:
        return check
    limits = tuple(limit for limit in check.limits if not limit.holds_between(known.low, known.high))
    return replace(check, present=check.present and known.nulls != 0, limits=limits)


def typed_rules(columns: Struct, keys: Iterable[str], check: ValueCheck | None, *, validate: bool) -> TypedRules | None:
    """The rules of a stream; None where only the checks of records can tell.

    Args:
        columns: The lake's columns of its records.
        keys: Columns that must have a value, whatever the schema says.
        check: The check of its records.
        validate: False asks for no more than that the lake's columns can hold the values.
    """
    asked: dict[str, ValueCheck] = {}
    if validate:
        if check is None or check.free:
            return None
        asked = {name: each for name, each in check.parts.items() if each.asks}
    for name in keys:
        asked[name] = replace(asked.get(name, ValueCheck(columns.types[name])), present=True)
    moments = (each.name for each in columns if "date" in str(each.type) or "timestamp" in str(each.type))
    return TypedRules(asked, frozenset(moments))


def dated(metadata: FileMetaData, places: Iterable[int]) -> bool:
    """Whether a footer proves that dates and times at these places lie between year 1 and year 9999."""
    for group in range(metadata.num_row_groups):
        for place in places:
            told = metadata.row_group(group).column(place).statistics
            if told is None or not (told.has_min_max or (told.has_null_count and told.num_values == 0)):
                return False
            try:
                _ = (told.min, told.max)
            except (OverflowError, ValueError):
                return False
    return True
