"""What an override takes, it takes exactly; everything else is an error with the column's name."""

from __future__ import annotations

import math
import re
import time
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from singer_spark.core.sql_type import SqlType
from tap_spark_jdbc.dialects.type_rules import KNOWN_TYPES, spark_string, text_cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = "550e8400-e29b-41d4-a716-446655440000"
FITS: dict[str, dict[str, Any]] = {
    "TEXT": {"": "", " a\n": " a\n"},
    "VARCHAR": {"x": "x"},
    "CHAR": {"x ": "x "},
    "JSON": {"null": "null"},
    "TIME": {"24:00": "24:00"},
    "TIME WITH TIME ZONE": {"24:00+01": "24:00+01"},
    "INTERVAL": {"1 day": "1 day"},
    "UUID": {CODE: CODE},
    "BOOLEAN": {"T": True, "no": False, "1": True},
    "TINYINT": {"-128": -128, "+1": 1},
    "SMALLINT": {"32767": 32767},
    "INTEGER": {"-2147483648": -(2**31)},
    "BIGINT": {"9223372036854775807": 2**63 - 1, "007": 7},
    "DECIMAL(5,2)": {
        "-999.99": Decimal("-999.99"),
        "1.5000": Decimal("1.50"),
        ".5": Decimal("0.50"),
    },
    "DECIMAL(38,0)": {"9" * 38: Decimal("9" * 38)},
    "REAL": {"0.5": 0.5, "-Infinity": -math.inf},
    "DOUBLE PRECISION": {"1e308": 1e308, "-.5E-3": -0.0005, "inf": math.inf, "5.": 5.0},
    "DATE": {"0001-01-01": date(1, 1, 1), "2024-02-29": date(2024, 2, 29)},
    "timestamp_ntz": {"2025-03-30 02:30": datetime(2025, 3, 30, 2, 30)},
    "TIMESTAMP": {"2025-03-30T02:30:00.123456000": datetime(2025, 3, 30, 2, 30, 0, 123456)},
    "TIMESTAMP WITH TIME ZONE": {
        "2025-03-30 02:30:00+05:30": datetime(2025, 3, 29, 21, tzinfo=UTC),
        "9999-12-31 23:59:59+05": datetime(9999, 12, 31, 18, 59, 59, tzinfo=UTC),
        "0001-01-03 00:00:00-05": datetime(1, 1, 3, 5, tzinfo=UTC),
    },
}
MISFITS = {
    "UUID": [CODE[:-1], f"{{{CODE}}}", f"{CODE}\n"],
    "BOOLEAN": ["2", "", "maybe"],
    "TINYINT": ["128", "1.0", "1 ", "0x1", ""],
    "BIGINT": ["9223372036854775808", "1e3", "1\n", "\uff11"],
    "DECIMAL(5,2)": ["1.001", "1000", "NaN", "1e2", "", "."],
    "REAL": ["1e39", "12f", "abc"],
    "DOUBLE PRECISION": ["1e400", "12d", "0x1p3", "1,5", " 1", ""],
    "DATE": [
        "2025-02-30",
        "0000-01-01",
        "10000-01-01",
        "2025-01-01 00:00",
        "today",
        "2025-1-1",
        "2025-01-01\n",
    ],
    "TIMESTAMP": [
        "2025-01-01 24:00:00",
        "2025-01-01 10:00:00.1234567",
        "2025-01-01 10:00Z",
        "2025-01-01 10",
        "now",
    ],
    "TIMESTAMP WITH TIME ZONE": [
        *("2025-01-01 10:00+25:00", "2025-01-01 10:00 Europe/Berlin", "infinity"),
        *(
            "9999-12-31 23:59:59-05",
            "0001-01-01 00:00:00+05:00",
            "2016-12-31 23:59:60Z",
            "2016-12-31 24:00:00Z",
        ),
    ],
}


def cast(type_name: str, value: str) -> str:
    template = text_cast(SqlType.parse(type_name)).replace("{complaint}", "'column v: '")
    return template.replace("{c}", spark_string(value))


def only_row(spark: SparkSession, query: str) -> Any:
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        (row,) = spark.sql(query).collect()
        return row


def instant(local: datetime) -> datetime:
    """PySpark's local time as an instant; `astimezone` fails at the end of the year 9999."""
    whole = datetime.fromtimestamp(time.mktime(local.timetuple()), UTC)
    return whole.replace(microsecond=local.microsecond)


def test_override_reads_fitting_values_exactly(spark: SparkSession) -> None:
    assert {SqlType.parse(name).name for name in FITS} == set(KNOWN_TYPES)
    cases = [
        (name, value, exact) for name, values in FITS.items() for value, exact in values.items()
    ]
    row = only_row(spark, f"SELECT {', '.join(cast(name, value) for name, value, _ in cases)}")
    found = [instant(each) if name.endswith("ZONE") and "TIMESTAMP" in name else each
             for (name, _, _), each in zip(cases, row, strict=True)]  # fmt: skip
    assert [
        (name, value, mine) for (name, value, _), mine in zip(cases, found, strict=True)
    ] == cases


def test_unfit_override_names_its_column(
    spark: SparkSession,
) -> None:
    """An override that does not fit is an error with the column's name."""
    cases = [(name, value) for name, values in MISFITS.items() for value in values]
    # All in one query, with NULL for each error.
    refused = [
        re.sub(r"raise_error\(concat\('column v: ', '.*?'\)\)", "NULL", cast(*each), flags=re.S)
        for each in cases
    ]
    assert not any("raise_error" in each for each in refused)
    row = only_row(spark, f"SELECT {', '.join(refused)}")
    assert [
        (each, taken) for each, taken in zip(cases, row, strict=True) if taken is not None
    ] == []
    with pytest.raises(Exception, match="column v: 1e400"):
        only_row(spark, f"SELECT {cast('DOUBLE PRECISION', '1e400')}")
