"""What a Delta log says of a file, so that readers can skip it: rows, NULLs, the least and the greatest values."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from singer_spark.singer.exact_json import to_json
from target_spark_lake.delta_log.schema import scalar_columns

if TYPE_CHECKING:
    from target_spark_lake.columns.lake_type import Scalar, Struct
    from target_spark_lake.tables.file_statistics import Bound, FileStatistics

# As many as other writers of Delta describe.
MOST_COLUMNS = 32
_BOUNDED = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **{"string": str, "decimal": Decimal, "date": date, "timestamp": datetime, "timestamp_ntz": datetime},
}


def described_columns(columns: Struct) -> dict[str, Scalar]:
    """The columns of a table that its log describes."""
    return dict(list(scalar_columns(columns).items())[:MOST_COLUMNS])


def statistics_text(known: FileStatistics, described: dict[str, Scalar]) -> str:
    """The `stats` of a file.

    Args:
        known: What its footer tells.
        described: Of these columns.
    """
    nulls: dict[str, int] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for name, kind in described.items():
        found = known.columns.get(name)
        if found is None:
            continue
        if found.nulls is not None:
            nulls[name] = found.nulls
        if kind.name in _BOUNDED and _is_plain(found.low, kind) and _is_plain(found.high, kind):
            low[name], high[name] = _value(found.low), _value(found.high)
    return to_json({"numRecords": known.rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _is_plain(bound: Bound | None, kind: Scalar) -> bool:
    """Whether it is a value of the type; of decimals one without exponent, which not every reader takes."""
    return isinstance(bound, _BOUNDED[kind.name]) and not (isinstance(bound, Decimal) and "E" in str(bound))


def _value(bound: Any) -> Any:
    """A value as the log spells it; moments exact to the microsecond."""
    if isinstance(bound, datetime):
        text = bound.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if bound.tzinfo is not None else text
    return bound.isoformat() if isinstance(bound, date) else bound
