"""Numbers in records that pass through stream maps and flattening: maps compute with floats,
everything else is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singer_spark.core.exact_json import Number, Spelled, state_from_json

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

__all__ = ["as_written", "for_maps", "has_decimals", "state_from_json"]


def has_decimals(plan: StreamPlan) -> bool:
    """Whether records hold numbers with more digits than a float has."""
    types = (column.sql_type.element or column.sql_type for column in plan.columns)
    return any(each.name == "DECIMAL" for each in types)


def for_maps(record: dict[str, Any]) -> dict[str, Any]:
    """A parsed record, prepared for maps.

    Flattening prints arrays, and only prints decimals exactly.
    """
    return {
        name: as_written(value) if isinstance(value, list) else value
        for name, value in record.items()
    }


def as_written(value: Any) -> Any:
    """The value with numbers that the SDK prints as they were read."""
    if isinstance(value, Number):
        return Spelled(value.text)
    if isinstance(value, dict):
        return {name: as_written(each) for name, each in value.items()}
    return [as_written(each) for each in value] if isinstance(value, list) else value
