"""Finds members of records that the SCHEMA does not declare: they get no column, and users are
warned.
"""

from __future__ import annotations

import orjson

from target_spark_lake.intake.singer_lines import LONG_LINE, RecordLines
from target_spark_lake.intake.stream_schema import StreamSchema

LOOKED_AT = 20
SHOWN = 10


def undeclared_members(schema: StreamSchema, lines: RecordLines) -> str:
    """Names of undeclared members in the first of these records, for display; empty if there are
    none.
    """
    found: dict[str, None] = {}
    first = lines.data[: LOOKED_AT * LONG_LINE].split(b"\n", LOOKED_AT)[:LOOKED_AT]
    for line in (each for each in first if len(each) < LONG_LINE):
        try:
            record = orjson.loads(line)["record"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
        if isinstance(record, dict):
            found |= dict.fromkeys(name for name in record if not name.startswith("_sdc_"))
    names = [name for name in found if name not in schema.schema["properties"]]
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )
