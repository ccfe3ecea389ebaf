"""Replication-key values: nothing is lost between a database's text, a bookmark and a
comparison.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.key_value import KeyType, KeyValue

moments = st.datetimes(
    min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31, 23, 59, 59, 999999)
)


@given(moments)
def test_naive_moment_round_trips(moment: datetime) -> None:
    """A naive timestamp survives the text of databases and of bookmarks."""
    printed_by_database = moment.isoformat(sep=" ")
    value = KeyValue.parse(printed_by_database, KeyType.DATETIME)
    assert value.moment() == moment
    assert KeyValue.parse(value.json_value(), KeyType.DATETIME) == value
    assert not value.text.endswith("Z")


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_aware_timestamp_keeps_its_instant(moment: datetime, zone: timezone) -> None:
    instant = moment.replace(tzinfo=zone)
    value = KeyValue.parse(instant.isoformat(sep=" "), KeyType.TIMESTAMP, aware=True)
    assert value.text.endswith("Z")
    assert value.moment().replace(tzinfo=UTC) == instant


@given(moments, moments)
def test_moments_compare_by_value(left: datetime, right: datetime) -> None:
    values = [KeyValue.parse(each.isoformat(), KeyType.TIMESTAMP) for each in (left, right)]
    assert (values[0] < values[1]) == (left < right)


@given(st.integers(), st.integers())
def test_integers_compare_by_value_at_any_size(left: int, right: int) -> None:
    values = [KeyValue.parse(str(each), KeyType.INTEGER) for each in (left, right)]
    assert (values[0] < values[1]) == (left < right)
    assert values[0].json_value() == left


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9))
def test_decimals_keep_every_digit(number: Decimal) -> None:
    value = KeyValue.parse(str(number), KeyType.DECIMAL)
    assert Decimal(str(value.json_value())) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.integers(0, 20))
def test_decimal_scale_does_not_change_value(number: Decimal, zeros: int) -> None:
    scaled = f"{number:f}{'0' * zeros}"
    assert KeyValue.parse(scaled, KeyType.DECIMAL) == KeyValue.parse(str(number), KeyType.DECIMAL)
    assert (KeyValue.parse(scaled, KeyType.DECIMAL).text == "0") == (number == 0)


@given(st.dates())
def test_dates_round_trip(day: date) -> None:
    assert KeyValue.parse(day.isoformat(), KeyType.DATE).json_value() == day.isoformat()


def test_nanoseconds_are_kept_and_compared() -> None:
    early = KeyValue.parse("2025-01-20 15:30:00.123456788", KeyType.TIMESTAMP)
    late = KeyValue.parse("2025-01-20 15:30:00.123456789", KeyType.TIMESTAMP)
    assert early < late
    assert late.json_value() == "2025-01-20T15:30:00.123456789"


def test_digits_beyond_nanoseconds_are_refused() -> None:
    """Zeros after the nanoseconds are ignored, and other digits are refused."""
    value = KeyValue.parse("2025-01-20 15:30:00.123456000000", KeyType.DATETIME)
    assert value.text == "2025-01-20T15:30:00.123456"
    with pytest.raises(ValueError, match="is not a datetime"):
        KeyValue.parse("2025-01-20 15:30:00.123456789012", KeyType.DATETIME)


def test_lag_only_lowers_bound() -> None:
    value = KeyValue.parse("2025-01-20T15:30:00.123456789", KeyType.TIMESTAMP)
    assert value.minus(30).text == "2025-01-20T15:29:30.123456"
    assert KeyValue.parse("0001-01-01", KeyType.DATE).minus(10**9).text == "0001-01-01"
    assert KeyValue.parse(10, KeyType.INTEGER).minus(30).json_value() == -20
    # More digits than Python's decimals keep by themselves: rounded, it would lie above the value.
    wide = KeyValue.parse("12345678901234567890123456789012345678909.5", KeyType.DECIMAL)
    assert wide.minus(1).text == "12345678901234567890123456789012345678908.5"


@pytest.mark.parametrize(
    ("raw", "key_type", "says"),
    [
        ("yesterday", KeyType.TIMESTAMP, "yesterday"),
        ("2025-13-01", KeyType.DATE, "month"),
        ("1.5", KeyType.INTEGER, "not an integer"),
        ("NaN", KeyType.DECIMAL, "finite"),
        (None, KeyType.INTEGER, "None"),
        (True, KeyType.INTEGER, "True"),
        ("2025-01-20T15:30:00+02:00", KeyType.DATETIME, "time zone"),
    ],
)
def test_invalid_value_is_refused_with_its_text(raw: object, key_type: KeyType, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KeyValue.parse(raw, key_type)


def test_key_type_aliases_are_case_insensitive() -> None:
    assert KeyType.of("BigInt") is KeyType.INTEGER
    assert KeyType.of("timestamptz") is KeyType.TIMESTAMP
    with pytest.raises(ValueError, match="known are"):
        KeyType.of("blob")
