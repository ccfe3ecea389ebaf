"""Values of every type as a tap may write them, valid and invalid, and what is made of a line of
one.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from singer_spark.core.schema_mapping import stream_columns
from target_spark_lake.stage.batch_plan import BatchPlan
from target_spark_lake.stage.line_rows import rows_of
from target_spark_lake.validate.bulk_check import record_check
from target_spark_lake.validate.record_validator import RecordValidator

TEXT = {"type": ["string", "null"]}
TYPES = {
    "big": {"type": ["integer", "null"], "x-sql-datatype": "BIGINT"},
    "small": {"type": ["integer", "null"], "x-sql-datatype": "SMALLINT"},
    "price": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(12,2)"},
    "huge": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(38,18)"},
    "ratio": {"type": ["number", "null"], "x-sql-datatype": "DOUBLE PRECISION"},
    "plain": {"type": ["number", "null"]},
    "flag": {"type": ["boolean", "null"]},
    "day": {"type": ["string", "null"], "format": "date"},
    "naive": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
    "aware": {"type": ["string", "null"], "format": "date-time"},
    "text": TEXT,
    "code": {"type": ["string", "null"], "format": "uuid"},
    "bytes": {"type": ["string", "null"], "contentEncoding": "base64"},
    "json": {"type": ["object", "null"]},
    "tags": {"type": ["array", "null"], "items": {"type": ["string", "null"]}},
    "numbers": {"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
    "mixed": {"type": ["integer", "string", "null"]},
    "anything": {},
    "deep": {
        "type": ["object", "null"],
        "properties": {"a": {"type": ["integer", "null"]}, "b": TEXT},
    },
}
USUAL = {
    "big": "-12",
    "small": "5",
    "price": "12.34",
    "huge": "0.25",
    "ratio": "1.5e-7",
    "plain": "-0.25",
    "flag": "false",
    "day": '"2025-01-20"',
    "naive": '"2025-01-20T15:30:00.123456"',
    "aware": '"2025-01-20T15:30:00Z"',
    "text": r'"a\"b\\ \u00e9 é"',
    "code": '"123e4567-e89b-12d3-a456-426614174000"',
    "bytes": '"AAH/"',
    "json": '{"a": [1]}',
    "tags": '["a", "b\\"", null]',
    "numbers": "[1, 2]",
    "mixed": '"x"',
    "anything": "{}",
    "deep": '{"a": 1, "b": "x"}',
}
VALID = [
    ("big", "9223372036854775807", 2**63 - 1),
    ("big", "-9223372036854775808", -(2**63)),
    ("big", "1.0", 1),
    ("big", "1e3", 1000),
    ("small", "-32768", -32768),
    ("price", "1234567890.12", Decimal("1234567890.12")),
    ("price", "-0.5", Decimal("-0.50")),
    ("price", "7", Decimal("7.00")),
    ("price", "1.500", Decimal("1.50")),
    ("price", "1.2e1", Decimal("12.00")),
    (
        "huge",
        "12345678901234567890.123456789012345678",
        Decimal("12345678901234567890.123456789012345678"),
    ),
    ("huge", "0.000000000000000001", Decimal("0.000000000000000001")),
    ("ratio", "0.1", 0.1),
    ("ratio", "1.7976931348623157e308", 1.7976931348623157e308),
    ("ratio", '"Infinity"', float("inf")),
    ("ratio", '"-Infinity"', float("-inf")),
    ("plain", "3", 3.0),
    ("plain", "-9007199254740994", -9007199254740994.0),
    ("plain", "1e23", 1e23),
    ("plain", "123456789012345680000", 123456789012345680000.0),
    ("plain", "9007199254740993.5", 9007199254740994.0),
    ("ratio", "9007199254740993", 9007199254740992.0),
    ("flag", "true", True),
    ("day", '"0001-01-01"', date(1, 1, 1)),
    ("day", '"1582-10-10"', date(1582, 10, 10)),
    ("day", '"9999-12-31"', date(9999, 12, 31)),
    ("naive", '"2025-03-30T02:30:00.123456"', datetime(2025, 3, 30, 2, 30, 0, 123456)),
    ("naive", '"0001-01-01T00:00:00"', datetime(1, 1, 1)),
    ("naive", '"2025-01-01 10:00:00"', datetime(2025, 1, 1, 10)),
    ("naive", '"2025-01-01T10:00:00Z"', datetime(2025, 1, 1, 10)),
    ("aware", '"2025-01-20T15:30:00.5+02:00"', datetime(2025, 1, 20, 13, 30, 0, 500000, UTC)),
    ("aware", '"2025-01-20 15:30:00+02"', datetime(2025, 1, 20, 13, 30, tzinfo=UTC)),
    ("aware", '"2025-01-20T15:30:00"', datetime(2025, 1, 20, 15, 30, tzinfo=UTC)),
    ("aware", '"2025-01-20T15:30:00.123456000Z"', datetime(2025, 1, 20, 15, 30, 0, 123456, UTC)),
    ("text", '""', ""),
    ("text", '"null"', "null"),
    ("text", r'"a\"b\\c\n\u0000\u00e9\ud83d\ude00"', 'a"b\\c\n\x00é😀'),
    ("text", '"\u2028 é 😀"', "\u2028 é 😀"),
    ("text", r'"\\ud800 is text"', "\\ud800 is text"),
    ("bytes", '"AAH/"', b"\x00\x01\xff"),
    ("json", '{"y": 1.10, "x": [null, {"c": "x"}]}', '{"y":1.10,"x":[null,{"c":"x"}]}'),
    ("anything", "1.50", "1.50"),
    ("anything", "[0.1, 1e2]", "[0.1,1e2]"),
    ("anything", '"1.50"', '"1.50"'),
    (
        "json",
        '{"y": 12345678901234567890.1234567890123456789}',
        '{"y":12345678901234567890.1234567890123456789}',
    ),
    ("tags", '["a", null, "b,]"]', ["a", None, "b,]"]),
    ("tags", "[]", []),
    ("numbers", "[1, null, -2]", [1, None, -2]),
    ("mixed", "12", "12"),
    ("mixed", '"twelve"', '"twelve"'),
    ("deep", '{"a": 1, "b": "x", "unknown": 2}', {"a": 1, "b": "x"}),
]


def line_of(column: str, written: str) -> bytes:
    return f'{{"type": "RECORD", "stream": "s", "record": {{"{column}": {written}}}}}\n'.encode()


def numbered(values: list[tuple]) -> list[bytes]:
    """A record for each value, with its number."""
    return [
        line_of(column, written).replace(b"}}\n", b', "case": %d}}\n' % case)
        if not written.endswith("}")
        else line_of("case", str(case)).replace(b"}}\n", f', "{column}": {written}}}}}\n'.encode())
        for case, (column, written, *_) in enumerate(values)
    ]


NUMBERED = {**TYPES, "case": {"type": "integer"}}
INVALID = [
    ("big", '"1"'),
    ("big", "1.5"),
    ("big", "true"),
    ("price", '"1.00"'),
    ("ratio", '"nan"'),
    ("ratio", '"0.5"'),
    ("plain", '"NaN"'),
    ("flag", '"true"'),
    ("flag", "1"),
    ("day", '"2025-02-30"'),
    ("day", '"2025-2-3"'),
    ("day", "20250203"),
    ("naive", '"2025"'),
    ("naive", "2025"),
    ("aware", '"2025-01-20"'),
    ("aware", '"yesterday"'),
    ("text", "5"),
    ("text", "true"),
    ("text", '{"a": 1}'),
    ("text", "[1]"),
    ("code", '"abc"'),
    ("json", '"text"'),
    ("json", "[1]"),
    ("tags", '["a", 5]'),
    ("tags", '"a"'),
    ("numbers", "[1.5]"),
    ("mixed", "1.5"),
    ("mixed", "true"),
    ("deep", '{"a": "1"}'),
    ("deep", '{"b": 1}'),
]


def doubtful(stream: dict, lines: list[bytes]) -> list[bytes]:
    """Those of the lines that are not surely right."""
    columns = stream_columns(stream["schema"], "s")
    plan = BatchPlan.of(
        columns, record_check(stream["schema"], stream["key_properties"]), None, "zstd"
    )
    return [line for line in lines if list(rows_of(line, plan)) == [line]]


def verdict(stream: dict, line: bytes) -> dict:
    """What the validator makes of one line."""
    columns = stream_columns(stream["schema"], "s")
    return RecordValidator(
        "s", stream["schema"], stream["key_properties"], columns, validate=True
    ).message(line)
