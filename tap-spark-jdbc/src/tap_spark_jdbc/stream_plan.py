"""What this run does with each stream: the catalog, the settings and the tables, laid over each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from singer_spark.sql_type import property_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.bookmark import KeyValue
    from tap_spark_jdbc.settings import TapSettings
    from tap_spark_jdbc.tables import Column, Key, Table

FULL_TABLE = "FULL_TABLE"
INCREMENTAL = "INCREMENTAL"


@dataclass(frozen=True)
class StreamPlan:
    """One selected stream.

    Attributes:
        table: Where it comes from.
        stream: Its name.
        columns: The selected ones, key columns always among them; type overrides are applied.
        replication_method: `FULL_TABLE` or `INCREMENTAL`.
        replication_key: None for FULL_TABLE.
        key_properties: The record's key: of the catalog, the settings or the table; may be empty.
        start_value: Inclusive lower bound of a run without bookmark.
        end_value: Exclusive upper bound; the run is then a backfill and leaves the bookmark alone.
        load_method: What the user asked the target for, if anything.
        where: SQL condition of the user's own, to be put in parentheses.
        partition_column: Key to split by, where the user names one.
        detect_deletes: Whether deletes are to be looked for.
        null_policy: What becomes of rows whose replication key is NULL.
    """

    table: Table
    stream: str
    columns: tuple[Column, ...]
    replication_method: Literal["FULL_TABLE", "INCREMENTAL"]
    replication_key: Key | None = None
    key_properties: tuple[str, ...] = ()
    start_value: KeyValue | None = None
    end_value: KeyValue | None = None
    load_method: str | None = None
    where: str | None = None
    partition_column: Key | None = None
    detect_deletes: bool = False
    null_policy: Literal["include", "exclude", "error"] = "include"

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the records, without stream annotations."""
        properties = {
            column.name: property_schema(column.sql_type, nullable=column.nullable) for column in self.columns
        }
        return {"type": "object", "properties": properties}


def plan_streams(
    tables: Sequence[Table], settings: TapSettings, catalog: Mapping[str, Any] | None = None, *, text_moments: bool
) -> list[StreamPlan]:
    """One plan for each selected stream, in the catalog's order, else the tables'.

    Args:
        tables: What discovery found.
        settings: The tap's settings.
        catalog: The raw catalog passed in, `{"streams": [...]}`; None: everything found is selected.
        text_moments: `Dialect.text_moments`.

    Raises:
        ConfigurationError: all that does not fit, at once: unknown tables and columns (with the nearest names),
            keys that can't be ordered, two streams with one name, two columns that differ by case only.
    """
    raise NotImplementedError
