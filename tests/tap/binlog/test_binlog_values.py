"""Values of every type in the log are those that the readers have of the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servers.mariadb import MariaDB
from tap.binlog.piped import committed, piped, records, refused, rows_of

COLUMNS = """
id int primary key, ti tinyint, tu tinyint unsigned, si smallint, su smallint unsigned,
mi mediumint,
mu mediumint unsigned, it int, iu int unsigned, bi bigint, bu bigint unsigned, zf int(6) zerofill,
zd decimal(7,2) zerofill, f float, d double,
de decimal(10,3), d2 decimal(38,10), d3 decimal(65,30), d4 decimal(9,9), d5 decimal(18,0),
ye year, b1 bit(1),
b9 bit(9), b64 bit(64), bo boolean, da date, dt datetime, dt3 datetime(3), dt6 datetime(6),
ts timestamp null,
ts6 timestamp(6) null, tm time, tm1 time(1), tm2 time(2), tm4 time(4), tm6 time(6), ch char(5),
cl char(200),
vc varchar(20), vl varchar(400) character set latin1, tx text, mt mediumtext,
lt longtext character set utf8mb3,
en enum('a','b''c','d,e'), se set('x','y','z'), bn binary(4), vb varbinary(10), tb tinyblob,
bl blob,
ge geometry, u16 varchar(10) character set utf16, u32 varchar(10) character set utf32,
uc varchar(10) character set ucs2, gr varchar(10) character set greek,
cp varchar(10) character set cp1251,
sj varchar(10) character set sjis, js json, sg int as (id + 1) stored, vg int as (id + 2) virtual
"""
ROWS = [
    """(1, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,
    -9223372036854775808,
    18446744073709551615, 42, 1.25, 1.1, -1.7976931348623157e308, -1234567.891,
    1234567890123456789012345678.0123456789,
    -1.5, 0.123456789, -123456789012345678, 2155, 1, 257, 18446744073709551615, 1,
    '1000-01-01', '9999-12-31 23:59:59',
    '2024-02-29 12:34:56.789', '1000-01-01 00:00:00.000001', '2038-01-19 03:14:07',
    '1970-01-01 00:00:01.000001',
    '-838:59:59', '-00:00:01.1', '-00:00:01.10', '00:00:00.0001', '838:59:59', 'ab',
    repeat('ü', 200), 'é\\n"', 'ü€',
    repeat('x', 3000), '', '漢字', 'b''c', 'x,z', 'a', x'61000062', x'00', x'00ff',
    st_geomfromtext('POINT(1 2)', 4326),
    'aé漢', 'a😀', 'aé', 'αβγ', 'жук', 'テスト', 
    '{"b": [1, -2.5, null, true, "é\\\\n"], "a": {"n": 1e20, "m": 70000}}')""",
    """(2, 127, 0, 32767, 0, 8388607, 0, 2147483647, 0, 9223372036854775807, 0, 0, 0, -3.4e38,
    4.9e-324, 0, 0, 0, 0, 0,
    1901, 0, 0, 0, 0, '9999-12-31', '1000-01-01 00:00:00', '1999-12-31 23:59:59.999',
    '9999-12-31 23:59:59.999999',
    '1970-01-01 00:00:01', '2038-01-19 03:14:07.999999', '00:00:00', '00:00:00', '12:00:00.99',
    '-838:59:58.9999',
    '-00:00:00.000001', '', '', '', '', '', 'x', '', 'a', '', '', '', '', '',
    st_geomfromtext('LINESTRING(0 0,1.5 1)'), '', '', '', '', '', '', '[]')""",
]
NULLS = "(3)"


NAMES = [
    each.split()[0]
    for each in COLUMNS.replace("\n", " ").split(", ")
    if " as (" not in each and each.split()[0].isidentifier()
]


def test_values_of_every_type(server: MariaDB, tmp_path: Path) -> None:
    names = ",".join(NAMES)
    script = f"create table t ({COLUMNS}) character set utf8mb4"
    with piped(server, tmp_path, script) as (pipe, cursor):
        cursor.execute(f"insert into t ({names}) values {ROWS[0]}")
        first = records(committed(pipe))
        assert [each["id"] for each in first] == [1]
        cursor.execute("delete from t")
        for each in ROWS:
            cursor.execute(f"insert into t ({names}) values {each}")
        cursor.execute(f"insert into t (id) values {NULLS}")
        found = [each for each in records(committed(pipe)) if not each.pop("deleted", False)]
        for each in found:
            assert each.pop("_sdc_log_position")
        wanted = rows_of(pipe)
        for one, other in zip(found, wanted, strict=True):
            assert {name: value for name, value in one.items() if other[name] != value} == {}
            assert one == other


@pytest.mark.parametrize("kind", ["hash", "last4", "redact", "null", "text"])
def test_masked_and_overridden_values(server: MariaDB, tmp_path: Path, kind: str) -> None:
    """Masks and `type_overrides`, chosen and renamed columns: as the readers give them."""
    columns = dict.fromkeys([each for each in NAMES if each not in ("id", "da")], kind)
    chosen = {"type_overrides" if kind == "text" else "mask": columns}
    options = {**chosen, "rename": {"vc": "text of vc"}, "exclude_columns": ["sg", "da"]}
    script = f"create table t ({COLUMNS}) character set utf8mb4"
    logged = {"*": {"replication_method": "LOG_BASED", **options}}
    with piped(server, tmp_path, script, stream_options=logged, mask_key="salt") as (pipe, cursor):
        committed(pipe)
        for each in ROWS:
            cursor.execute(f"insert into t ({','.join(NAMES)}) values {each}")
        cursor.execute(
            "insert into t (id, ye, f, d, zd, zf) values (4, 0, 16777217, 1e20, 1.5, 1234567)"
        )
        cursor.execute("insert into t (id, ye, f, d, zd) values (5, 2000, 1e-7, 0.1, 0)")
        cursor.execute(f"insert into t (id) values {NULLS}")
        cursor.execute("delete from t where id = 3")
        cursor.execute(f"insert into t (id) values {NULLS}")
        found = [each for each in records(committed(pipe)) if not each.pop("deleted", False)]
        for each in found:
            assert each.pop("_sdc_log_position")
        wanted = rows_of(pipe, stream_options={"*": options})
        assert "text of vc" in wanted[0] and "sg" not in wanted[0] and "da" not in wanted[0]
        by_id = {each["id"]: each for each in found}
        for other in wanted:
            one = by_id[other["id"]]
            assert {
                name: (value, other.get(name))
                for name, value in one.items()
                if other[name] != value
            } == {}
            assert one.keys() == other.keys()


def test_zero_dates(server: MariaDB, tmp_path: Path) -> None:
    """They are refused by the name of their column, and read as text where that is asked for."""
    script = "create table t (id int primary key, da date, dt datetime(3), ts timestamp null)"
    with piped(server, tmp_path, script) as (pipe, cursor):
        committed(pipe)
        cursor.execute(
            "insert into t values (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00')"
        )
        cursor.execute("insert into t values (2, '2024-00-15', '2024-02-00 01:02:03.456', null)")
        assert re.search(r"column (da|dt|ts) .*set its type_overrides to text", refused(pipe))
        texts = {"type_overrides": dict.fromkeys(("da", "dt", "ts"), "text")}
        pipe.config["stream_options"] = {"*": {"replication_method": "LOG_BASED", **texts}}
        found = records(committed(pipe))
        for each in found:
            assert each.pop("_sdc_log_position")
        assert found == rows_of(pipe, stream_options={"*": texts})
        assert [each["da"] for each in found] == ["0000-00-00", "2024-00-15"]
