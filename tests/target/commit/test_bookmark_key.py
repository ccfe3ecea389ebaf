"""What kind of value a replication key has, according to what was saved of it, and values that
users give.
"""

from __future__ import annotations

import pytest

from singer_spark.core.key_value import KeyType
from target_spark_lake.commit.bookmarks import key_of_bookmark, key_of_column, key_of_type

UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("saved", "columns", "given", "becomes"),
    [
        (7, {}, "42", 42),
        (7, {"k": "bigint"}, " -9223372036854775808 ", -(2**63)),
        ("7", {"k": "bigint"}, "42", 42),
        (1.5, {}, "2.50", "2.5"),
        ("1.50", {"k": "decimal(12,2)"}, "3", "3"),
        ("2025-01-20", {}, "2025-02-01", "2025-02-01"),
        ("2025-01-20", {"k": "timestamp_ntz"}, "2025-02-01", "2025-02-01"),
        ("2025-01-20T10:00:00.000000", {}, "2025-01-21 11:30", "2025-01-21T11:30:00.000000"),
        (
            "2025-01-20T10:00:00.000000Z",
            {},
            "2025-01-21T11:30:00+02:00",
            "2025-01-21T09:30:00.000000Z",
        ),
        ("2025-01-20T10:00:00.000000Z", {}, "2025-01-21", "2025-01-21T00:00:00.000000Z"),
        (
            "2025-01-20T10:00:00.123456789",
            {},
            "2025-01-21T11:30:00.5",
            "2025-01-21T11:30:00.500000",
        ),
        ("abc", {"k": "string"}, "42", "42"),
        ("000123", {"k": "string"}, "abc", "abc"),
        ("Jan 2025", {"k": "timestamp"}, "2025-01-21", "2025-01-21T00:00:00.000000Z"),
        (UUID, {"k": "string"}, UUID.replace("1", "2"), UUID.replace("1", "2")),
        ("\\x0aff", {"k": "binary"}, "\\x0b", "\\x0b"),
    ],
)
def test_key_value_is_normalized_as_tap_writes_it(saved, columns, given, becomes) -> None:
    """A value of the key's type is accepted and written as the tap would write it."""
    key = key_of_bookmark("k", saved, columns, "saved")
    assert key is not None
    assert key.value(given).json_value() == becomes


@pytest.mark.parametrize(
    ("saved", "columns", "given", "looks_like"),
    [
        (7, {}, "abc", "42"),
        (7, {}, "1.5", "42"),
        (7, {}, "1_000", "42"),
        (7, {}, "", "42"),
        (7, {"k": "int"}, "2147483648", "42"),
        ("1.50", {}, "NaN", "12.50"),
        ("2025-01-20", {}, "2025-13-01", "2025-01-20"),
        ("2025-01-20", {}, "2025-01-21T10:00:00", "2025-01-20"),
        ("2025-01-20T10:00:00.000000", {}, "yesterday", "2025-01-20T15:30:00"),
        ("2025-01-20T10:00:00.000000", {}, "2025-01-21T11:30:00+02:00", "2025-01-20T15:30:00"),
        ("2025-01-20T10:00:00.000000Z", {}, "42", "2025-01-20T15:30:00Z"),
        (UUID, {}, "abc", "123e4567"),
        ("\\x0aff", {}, "\\x0", "x0aff"),
        ("abc", {"k": "binary"}, "xyz", "x0aff"),
    ],
)
def test_wrong_key_value_type_is_refused(saved, columns, given, looks_like) -> None:
    """A value of another type is refused with an example of a valid one."""
    key = key_of_bookmark("k", saved, columns, "saved")
    assert key is not None
    with pytest.raises(ValueError, match="its replication key k is of type") as refused:
        key.value(given)
    assert f"give a value like {looks_like}" in str(refused.value).replace("\\x", "x")


def test_key_type_is_explicit_or_from_column() -> None:
    """Without a saved value, the key's type is given explicitly or read from the column."""
    assert key_of_type("k", "bigint").key_type is KeyType.INTEGER
    assert key_of_type("k", "timestamptz").value("2025-01-21").text.endswith("Z")
    assert not key_of_type("k", "timestamp").value("2025-01-21").text.endswith("Z")
    column = key_of_column("k", {"k": "timestamp"})
    assert column is not None
    assert column.aware
    assert key_of_column("k", {"k": "string"}) is None
    assert key_of_column("k", {}) is None
    assert key_of_bookmark("k", None, {}, "saved") is None
    assert key_of_bookmark("k", True, {}, "saved") is None
