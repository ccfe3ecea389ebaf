"""Dates and times of the binary log: packed into bits, with a fraction of up to six digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.binlog.events import little
from tap_spark_jdbc.binlog.table_map import (
    DATE,
    DATETIME,
    NEWDATE,
    OLD_DATETIME,
    OLD_TIME,
    OLD_TIMESTAMP,
    TIMESTAMP,
)

if TYPE_CHECKING:
    from tap_spark_jdbc.binlog.events import Numbers
    from tap_spark_jdbc.binlog.row_images import Flags, Values
    from tap_spark_jdbc.binlog.table_map import LoggedType

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


@dataclass(frozen=True)
class Moments:
    """Dates, or dates with times, of one column, by their parts.

    Attributes:
        micros: The microseconds since midnight.
        digits: The digits of the fraction.
    """

    nulls: Flags
    years: Numbers
    months: Numbers
    days: Numbers
    micros: Numbers
    digits: int
    has_time: bool

    @classmethod
    def of(cls, values: Values, kind: LoggedType) -> Moments:
        """Decode values of any type with a date."""
        digits = kind.meta[0] if kind.meta else 0
        if kind.code in (TIMESTAMP, OLD_TIMESTAMP):
            return cls._of_instants(values, kind, digits)
        begins = np.where(values.nulls, 0, values.begins)
        if kind.code in (DATE, NEWDATE):
            packed = little(values.content, begins, 3)
            nothing = np.zeros(len(values), np.int64)
            return cls(values.nulls, packed >> 9, packed >> 5 & 15, packed & 31, nothing, 0, False)
        if kind.code == OLD_DATETIME:
            number = little(values.content, begins, 8)
            date, time = number // 1_000_000, number % 1_000_000
            micros = _micros(time // 10_000, time // 100 % 100, time % 100)
            return cls(values.nulls, date // 10_000, date // 100 % 100, date % 100, micros, 0, True)
        assert kind.code == DATETIME
        packed = _big(values, 0, 5) - (1 << 39)
        months, days = packed >> 22, packed >> 17 & 31
        micros = _micros(packed >> 12 & 31, packed >> 6 & 63, packed & 63) + _fraction(
            values, 5, digits
        )
        return cls(values.nulls, months // 13, months % 13, days, micros, digits, True)

    @classmethod
    def _of_instants(cls, values: Values, kind: LoggedType, digits: int) -> Moments:
        if kind.code == OLD_TIMESTAMP:
            seconds = little(values.content, np.where(values.nulls, 0, values.begins), 4)
            fraction = np.zeros(len(values), np.int64)
        else:
            seconds, fraction = _big(values, 0, 4), _fraction(values, 4, digits)
        dates = (seconds // 86_400).astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        years = months.astype("datetime64[Y]").astype(np.int64) + 1970
        # The server stores a date of zeros as the first second.
        zero = seconds == 0
        years, months_of_year, days = (
            np.where(zero, 0, each)
            for each in (
                years,
                months.astype(np.int64) % 12 + 1,
                (dates - months).astype(np.int64) + 1,
            )
        )
        micros = np.where(zero, 0, seconds % 86_400 * _SECOND) + fraction
        return cls(values.nulls, years, months_of_year, days, micros, digits, True)

    def array(self, kind: pa.DataType) -> pa.Array:
        """The values as dates or timestamps; ValueError: one is not a day of the calendar."""
        leap = (self.years % 4 == 0) & ((self.years % 100 != 0) | (self.years % 400 == 0))
        lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])
        longest = lengths[self.months] + (leap & (self.months == 2))
        wrong = ~self.nulls & ((self.years < 1) | (self.days < 1) | (self.days > longest))
        if wrong.any():
            raise ValueError(
                f"{self.take(np.flatnonzero(wrong)[:1]).texts()[0].as_py()!r} is not a day"
            )
        months = (
            (np.where(self.nulls, 1970, self.years) - 1970) * 12
            + np.where(self.nulls, 1, self.months)
            - 1
        )
        days = (
            months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + self.days - 1
        )
        if pa.types.is_date(kind):
            return pa.array(days.astype(np.int32), pa.int32(), mask=self.nulls).view(pa.date32())
        return (
            pa.array(days * _DAY + self.micros, pa.int64(), mask=self.nulls)
            .view(pa.timestamp("us"))
            .cast(kind)
        )

    def take(self, rows: Numbers) -> Moments:
        """The values of some rows."""
        years, months, days, micros = (
            each[rows] for each in (self.years, self.months, self.days, self.micros)
        )
        return Moments(self.nulls[rows], years, months, days, micros, self.digits, self.has_time)

    def texts(self) -> pa.Array:
        """The values as the server writes them."""
        date = _joined("-", (self.years, 4), (self.months, 2), (self.days, 2))
        if self.has_time:
            date = pc.binary_join_element_wise(date, clock_texts(self.micros, self.digits), " ")
        return pc.if_else(pa.array(self.nulls), None, date)


def times(values: Values, kind: LoggedType) -> pa.Array:
    """Times of a day, or spans of up to 838 hours, as the server writes them."""
    digits = kind.meta[0] if kind.meta else 0
    if kind.code == OLD_TIME:
        number = little(values.content, np.where(values.nulls, 0, values.begins), 3)
        number = np.where(number >= 1 << 23, number - (1 << 24), number)
        size, negative = np.abs(number), number < 0
        micros = _micros(size // 10_000, size // 100 % 100, size % 100)
    else:
        more = (digits + 1) // 2
        number = _big(values, 0, 3 + more) - (1 << (23 + 8 * more))
        size, negative = np.abs(number), number < 0
        whole, fraction = size >> 8 * more, size & ((1 << 8 * more) - 1)
        micros = _micros(whole >> 12 & 1023, whole >> 6 & 63, whole & 63) + fraction * 10 ** (
            6 - 2 * more
        )
    texts = clock_texts(micros, digits)
    signed = pc.binary_join_element_wise(pc.if_else(pa.array(negative), "-", ""), texts, "")
    return pc.if_else(pa.array(values.nulls), None, signed)


def clock_texts(micros: Numbers, digits: int) -> pa.Array:
    """Hours, minutes, seconds and a fraction of this many digits."""
    seconds, fraction = micros // _SECOND, micros % _SECOND
    clock = _joined(":", (seconds // 3600, 2), (seconds // 60 % 60, 2), (seconds % 60, 2))
    if not digits:
        return clock
    return pc.binary_join_element_wise(clock, _padded(fraction // 10 ** (6 - digits), digits), ".")


def _micros(hours: Numbers, minutes: Numbers, seconds: Numbers) -> Numbers:
    return ((hours * 60 + minutes) * 60 + seconds) * _SECOND


def _big(values: Values, offset: int, size: int) -> Numbers:
    """The unsigned number of some bytes of each value, the highest first."""
    begins = np.where(values.nulls, 0, values.begins) + offset
    found = np.zeros(len(values), np.int64)
    for each in range(size):
        found = found << 8 | values.content[begins + each]
    return found


def _fraction(values: Values, offset: int, digits: int) -> Numbers:
    """The fraction of a second in microseconds; it is stored with two digits a byte."""
    size = (digits + 1) // 2
    scale: int = 10 ** (6 - 2 * size)
    return _big(values, offset, size) * scale


def _joined(sign: str, *parts: tuple[Numbers, int]) -> pa.Array:
    return pc.binary_join_element_wise(*(_padded(number, width) for number, width in parts), sign)


def _padded(number: Numbers, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(number).cast(pa.string()), width, "0")
