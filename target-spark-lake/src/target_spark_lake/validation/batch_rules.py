"""What the rows of a typed file must keep to beyond their types, so that it may be taken as it is.

Columns of the lake's own types hold no value of a wrong type. What is left is what a schema says of values, and of
that only what a footer proves, or a look at single columns; all else is for the checks that records go through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.singer.schema_mapping import json_types, spark_type
from singer_spark.singer.sql_type import annotated_type
from target_spark_lake.columns.lake_type import type_of_spark
from target_spark_lake.validation.bulk_check import UUID, BulkCheck, arrow_kind, is_comparable
from target_spark_lake.validation.limits import BOUNDS, Limit, limits_of
from target_spark_lake.validation.value_patterns import FLOATING, decimal_scale, declared_types, plain_branch

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from target_spark_lake.tables.file_statistics import ColumnRange
    from target_spark_lake.validation.record_check import RecordCheck

JSON = dict[str, Any]


@dataclass(frozen=True)
class TypedRules:
    """The rules of one stream.

    Attributes:
        kinds: Column to its type as Arrow names it, of the columns below.
        present: Columns that must not be NULL.
        limits: What values must keep to.
        patterns: Of text columns with a format: what the whole text must match.
        finite: Columns of fractions that must not be NaN or infinite.
        moments: Columns of dates and times: from year 1 to 9999.
    """

    kinds: Mapping[str, str]
    present: frozenset[str]
    limits: tuple[Limit, ...]
    patterns: Mapping[str, str]
    finite: frozenset[str]
    moments: frozenset[str]

    @property
    def questioned(self) -> frozenset[str]:
        """The columns of which a footer may prove something that is asked."""
        return self.present | {limit.column for limit in self.limits}

    def unproven(self, known: Mapping[str, ColumnRange]) -> BulkCheck:
        """What a file's footer leaves open, to be asked of its columns: of none where all is proven.

        Args:
            known: What the footer tells of the `questioned` columns.
        """
        present = {name for name in self.present if known[name].nulls != 0}
        limits = tuple(each for each in self.limits if not _holds(each, known[each.column]))
        columns = present | {each.column for each in limits} | set(self.patterns) | self.finite
        kinds = {name: self.kinds[name] for name in sorted(columns)}
        return BulkCheck(kinds, self.patterns, frozenset(present), limits)

    def are_decidable(self, asked: BulkCheck) -> bool:
        """Whether a look at the columns can tell all that is left."""
        return all(is_comparable(limit, self.kinds) for limit in asked.limits)


def typed_rules(schema: JSON, keys: Iterable[str], check: RecordCheck, *, validate: bool) -> TypedRules | None:
    """The rules of a stream; None where only the checks of records can tell.

    Args:
        schema: JSON Schema of the records.
        keys: Columns that must have a value, whatever the schema says.
        check: The checks of its records.
        validate: False asks for no more than that the lake's columns can hold the values.
    """
    kinds: dict[str, str] = {}
    moments = set()
    for name, each in schema["properties"].items():
        lake = type_of_spark(spark_type(each, name))
        kinds[name] = arrow_kind(str(lake))
        if any(word in str(lake) for word in ("date", "timestamp")):
            moments.add(name)
    if not validate:
        return TypedRules(kinds, frozenset(keys), (), {}, frozenset(), frozenset(moments))
    if check.by_jsonschema:
        return None
    limits, properties = limits_of(schema["properties"])
    present, patterns, finite = set(keys), {}, set()
    for name, each in properties.items():
        branch = plain_branch(each)
        if not _is_told_by_type(branch):
            return None
        if declared_types(branch) and "null" not in declared_types(branch):
            present.add(name)
        if branch.get("format") == "uuid":
            patterns[name] = f"^{UUID}$"
        if kinds[name].startswith("float") and not _may_be_infinite(branch):
            finite.add(name)
    return TypedRules(kinds, frozenset(present), tuple(limits), patterns, frozenset(finite), frozenset(moments))


def _is_told_by_type(branch: JSON) -> bool:
    """Whether the rest of what a top-level column asks for is told by its type, or is one of the rules."""
    kinds = json_types(branch)
    if kinds == {"string"}:
        return branch.get("format") in (None, "date", "date-time", "uuid")
    if kinds == {"boolean"}:
        return True
    if kinds and kinds <= {"integer", "number"}:
        return "multipleOf" not in branch or decimal_scale(branch) is not None
    return _is_free(branch)


def _is_free(schema: JSON) -> bool:
    """Whether every value of its type is right: of what lies inside of a column nothing else is looked at."""
    branch = plain_branch(schema)
    kinds = json_types(branch)
    if "null" not in declared_types(branch) and declared_types(branch):
        return False
    if kinds == {"object"} and branch.get("properties"):
        return not branch.get("required") and all(map(_is_free, branch["properties"].values()))
    if kinds == {"array"} and isinstance(branch.get("items"), dict) and branch["items"]:
        return _is_free(branch["items"])
    if kinds == {"string"}:
        return branch.get("format") in (None, "date", "date-time")
    if kinds and kinds <= {"integer", "number"}:
        fraction = "number" in kinds and decimal_scale(branch) is None
        return not fraction or _may_be_infinite(branch)
    return kinds == {"boolean"}


def _may_be_infinite(branch: JSON) -> bool:
    sql = annotated_type(branch)
    return sql is not None and sql.name in FLOATING


def _holds(limit: Limit, known: ColumnRange) -> bool:
    """Whether a footer proves that a column keeps to a bound."""
    if limit.keyword not in BOUNDS or known.low is None or known.high is None or isinstance(known.low, str):
        return False
    low: Any = known.low
    high: Any = known.high
    return bool(
        {
            "minimum": lambda: low >= limit.value,
            "exclusiveMinimum": lambda: low > limit.value,
            "maximum": lambda: high <= limit.value,
            "exclusiveMaximum": lambda: high < limit.value,
        }[limit.keyword]()
    )


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
