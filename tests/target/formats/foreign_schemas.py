"""What others do to the schema of a Delta table."""

from __future__ import annotations

import json
from typing import Any

from deltalake import Field
from deltalake.schema import PrimitiveType

from target.delta_lake import DeltaLake
from target_spark_lake.delta_log.snapshot import log_file


def give_column(lake: DeltaLake, kind: str = "string") -> None:
    """A column, a comment, a property, a table name; and a value in each row."""
    lake.table("s").alter.add_columns(
        [Field("theirs", PrimitiveType(kind), metadata={"comment": "reviewed by"})]
    )
    lake.table("s").alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    lake.table("s").alter.set_table_name("orders")
    lake.table("s").update(updates={"theirs": "concat('row ', cast(id as string))"})


def fields(lake: DeltaLake) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(lake.table("s").schema().to_json())["fields"]}


def rewrite_schema(lake: DeltaLake, change: Any, **details: Any) -> None:
    """A version in which someone else describes the columns differently; `change` gets them as a
    list.
    """
    found = lake.table("s")
    said = json.loads(found.schema().to_json())
    change(said["fields"])
    old = found.metadata()
    metadata = {
        **{
            "id": str(old.id),
            "format": {"provider": "parquet", "options": {}},
            "createdTime": old.created_time,
        },
        **{"schemaString": json.dumps(said), "partitionColumns": old.partition_columns},
        **{"configuration": old.configuration, **details},
    }
    place = lake.folder / log_file("raw/s", found.version() + 1)
    place.write_text(json.dumps({"metaData": metadata}) + "\n")


def not_null(name: str) -> Any:
    def change(columns: list[dict[str, Any]]) -> None:
        (column,) = (each for each in columns if each["name"] == name)
        column["nullable"] = False

    return change
