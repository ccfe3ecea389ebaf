"""Every type of MariaDB and MySQL with values at its extremes, and what pymysql's value is in the
lake.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.mariadb import MariaDatabase

DAYS = [
    "0001-01-01",
    "0004-02-29",
    "1000-02-28",
    "1582-10-05",
    "1582-10-14",
    "1969-12-31",
    "2024-02-29",
    "9999-12-31",
]
MOMENTS = [
    f"{day} {clock}" for day in DAYS for clock in ("00:00:00", "02:30:00.000001", "23:59:59.999999")
]
# Clock changes of Berlin and St. John's, and the two ends of the type.
INSTANTS = [
    "1970-01-01 00:00:01",
    "2025-03-30 01:00:00",
    "2025-03-30 02:30:00.000001",
    "2025-10-26 00:30:00",
    "2025-10-26 01:30:00",
    "2025-03-09 05:30:00",
    "2038-01-19 03:14:07.999999",
]
TEXTS = [
    "",
    "日本語 😀",
    "quotes \"'`\\",
    "back\\\\slash\\' OR 1=1 -- ",
    "line\nfeed\ttab\r",
    "null",
    "ß ẞ Ä",
    "\u2028",
]
DOUBLES = [
    1.7976931348623157e308,
    -2.2250738585072014e-308,
    5e-324,
    0.1,
    123456789.12345679,
    -0.0,
    9007199254740993.0,
]
FLOATS = [3.4028234663852886e38, 1.401298464324817e-45, 1.1, 16777215.0, -123456.789]
SHAPES = [
    "POINT(0.1 0.30000000000000004)",
    "LINESTRING(-1e-300 1.7976931348623157e308,0 0)",
    "SRID=4326;POINT(8.5 47.1)",
]
BYTES = [b"", b"\x00\xff\x10\\'\"", bytes(range(256)) * 20]

# As numbers of four bytes: the ends of what is normal and of what is not, both zeros, and what six
# digits do not show.
VECTORS = [
    [1.0, -2.5, 3.4028234663852886e38],
    [1.401298464324817e-45, -1.1754942106924411e-38, 0.10000000149011612],
]
VECTORS += [
    [0.0, -0.0, 16777217.0 - 1],
    [1.1754943508222875e-38, -1.0000001192092896, 123456.7890625],
]

# Type, values, and what pymysql's value is in the lake.
VALUES: dict[str, tuple[list[Any], Callable[[Any], Any]]] = {
    "tinyint": ([-128, 127], int),
    "tinyint(1)": ([0, 1, 2, -128, 127], int),
    "tinyint unsigned": ([0, 255], int),
    "smallint": ([-32768, 32767], int),
    "smallint unsigned": ([65535], int),
    "mediumint": ([-8388608, 8388607], int),
    "mediumint unsigned": ([16777215], int),
    "int": ([-2147483648, 2147483647], int),
    "int unsigned": ([4294967295], int),
    "int(8) unsigned zerofill": ([42], int),
    "bigint": ([-(2**63), 2**63 - 1, 9007199254740993], int),
    "bigint unsigned": ([0, 2**64 - 1], Decimal),
    "year": ([0, 1901, 2155], int),
    "decimal(12,2)": (["-9999999999.99", "9999999999.99", "0.01"], Decimal),
    "decimal(38,0)": (["9" * 38, "-" + "9" * 38], Decimal),
    "decimal(38,38)": (["0." + "9" * 38], Decimal),
    "decimal(10,3) unsigned zerofill": (["1.5"], Decimal),
    "decimal(39,0)": (["9" * 39], lambda value: format(value, "f")),
    "decimal(65,30)": (
        ["9" * 35 + "." + "9" * 30, "-0." + "0" * 29 + "1", "0"],
        lambda value: format(value, "f"),
    ),
    "float": (FLOATS, float),
    "float(9,3)": ([1234.568], float),
    "double": (DOUBLES, float),
    "double(20,5)": ([123456789.12345], float),
    "bit(1)": ([0, 1], lambda value: value == b"\x01"),
    "bit(12)": ([0, 5, 2**12 - 1], lambda value: f"{int.from_bytes(value):012b}"),
    "bit(64)": ([1, 2**64 - 1], lambda value: f"{int.from_bytes(value):064b}"),
    "date": (DAYS, lambda value: value),
    "datetime(6)": (MOMENTS, lambda value: value),
    "datetime": (["2024-03-31 02:30:00"], lambda value: value),
    "timestamp(6)": (INSTANTS, lambda value: value),
    "timestamp": (["2025-03-30 02:30:00"], lambda value: value),
    "time(6)": (["-838:59:59.999999", "838:59:59.999999", "00:00:00.000001", "24:00:00"], str),
    "time": (["-00:00:01", "23:59:59"], str),
    "char(40)": ([*TEXTS[:-1], "trailing  "], str),
    "varchar(40)": ([*TEXTS, "trailing  "], str),
    "varchar(40) character set latin1": (["Ä ß é", "back\\slash"], str),
    "text": ([*TEXTS, "😀x" * 9000], str),
    "longtext": (["a" * 70_000], str),
    "enum('b','it''s','a\\','😀')": (["b", "it's", "a\\", "😀"], str),
    "set('x','y z')": (["", "x", "x,y z"], str),
    "json": (
        [
            '{"b": 1, "a":  1.10, "b": null, "é": "\\u00e9\\n😀"}',
            "null",
            "[12345678901234567890.10]",
        ],
        str,
    ),
    "uuid": (["550e8400-e29b-41d4-a716-446655440000"], str),
    "inet4": (["255.0.0.1"], str),
    "inet6": (["::1", "2001:db8::ff00:42:8329"], str),
    "binary(4)": ([b"ab", b"\\'\x00\xff"], bytes),
    "varbinary(6000)": (BYTES, bytes),
    "blob": (BYTES, bytes),
    "geometry": (SHAPES, str),
}


# What only one of the two has, and MySQL's own.
ONLY_MARIADB = ("uuid", "inet4", "inet6", "decimal(38,38)")
VALUES_OF_MYSQL: dict[str, tuple[list[Any], Callable[[Any], Any]]] = {
    **{name: each for name, each in VALUES.items() if name not in ONLY_MARIADB},
    "time(6)": (["-838:59:59.000000", "838:59:58.999999", "00:00:00.000001", "24:00:00"], str),
    "varchar(40) character set utf8mb3": (["日本語", "ß"], str),
    "vector(3)": (
        [struct.pack("<3f", *each) for each in VECTORS],
        lambda value: list(struct.unpack("<3f", value)),
    ),
}


def column(number: int) -> str:
    """The name of the column of the type at this place in `VALUES`."""
    return f"v{number}"


def make_matrix(
    database: MariaDatabase, types: dict[str, tuple[list[Any], Callable[[Any], Any]]] = VALUES
) -> None:
    """Make table `matrix` with a column of each type, a row for each value and a last one of
    NULLs.
    """
    length = max(len(values) for values, _ in types.values()) + 1
    described = [f"{column(n)} {each} null default null" for n, each in enumerate(types)]
    generated = (
        "n int, virtual_sum int as (n + 1) virtual, stored_text varchar(20) as "
        "(concat('n', n)) stored"
    )
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists matrix")
        cursor.execute(
            f"create table matrix (id int auto_increment primary key, {', '.join(described)}, "
            f"{generated}) character set utf8mb4 collate utf8mb4_bin"
        )
        for row in range(length):
            given = [values[row] if row < len(values) else None for values, _ in types.values()]
            slots = [
                _slot(native_type, value) for native_type, value in zip(types, given, strict=True)
            ]
            names = ", ".join(column(n) for n in range(len(types)))
            # The shapes are in the statement itself.
            bound = [v for v, slot in zip(given, slots, strict=True) if slot == "%s"]
            cursor.execute(
                f"insert into matrix (n, {names}) values ({row}, {', '.join(slots)})", bound
            )


def _slot(native_type: str, value: Any) -> str:
    if native_type != "geometry" or value is None:
        return "%s"
    srid, _, shape = value.rpartition(";")
    return f"ST_GeomFromText('{shape}', {srid.removeprefix('SRID=') or 0})"
