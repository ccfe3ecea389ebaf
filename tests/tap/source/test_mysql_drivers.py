"""MySQL by MariaDB's driver and by its own: encryption in the words of either, and the same
rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from singer_spark.errors import SourceError
from tap.in_process import run_tap
from tap.opened import connected, login, source_of
from tap.source.mariadb_pipes import run
from tap_spark_jdbc.source.drivers import cached_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.mysql import MySQL, MySQLDatabase

OWN = {"driver_package": "com.mysql:mysql-connector-j:9.5.0"}
FOURTH = {"driver_package": "org.mariadb.jdbc:mariadb-java-client:4.0.0"}
TESTS = Path(__file__).parents[2]


@pytest.fixture
def database(mysql: MySQL) -> MySQLDatabase:
    return mysql.new_database()


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("sslMode=PREFERRED", "sslMode=trust"),
        ("requireSSL=true", "sslMode=trust"),
        ("requireSSL=true&verifyServerCertificate=true&x=y", "x=y&sslMode=verify-ca"),
        ("useSSL=true&requireSSL=true&verifyServerCertificate=false", "sslMode=trust"),
        ("useSSL=true", "useSSL=true"),
        ("useSSL=false&requireSSL=true", "useSSL=false&requireSSL=true"),
        ("sslMode=VERIFY_CA&requireSSL=true", "sslMode=VERIFY_CA&requireSSL=true"),
    ],
)
def test_mysql_ssl_options_are_translated(written: str, used: str) -> None:
    """No translated option is weaker than the original."""
    assert (
        source_of({"jdbc_url": f"jdbc:mysql://h/d?{written}"}).url
        == f"jdbc:mysql://h/d?{used}&permitMysqlScheme"
    )


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("?sslMode=trust", "?sslMode=REQUIRED"),
        ("?a=b&sslMode=verify-full&permitMysqlScheme", "?a=b&sslMode=VERIFY_IDENTITY"),
        ("?sslMode=PREFERRED", "?sslMode=PREFERRED"),
        ("", ""),
    ],
)
def test_mariadb_ssl_modes_are_translated_for_mysql(written: str, used: str) -> None:
    for chosen in (OWN, {"driver": "com.mysql.cj.jdbc.Driver"}):
        source = source_of({"jdbc_url": f"jdbc:mariadb://h/d{written}", **chosen})
        assert (source.url, source.driver) == (
            f"jdbc:mysql://h/d{used}",
            "com.mysql.cj.jdbc.Driver",
        )


def test_logins_of_mysql(spark: SparkSession, database: MySQLDatabase) -> None:
    """Its default way of login: each refusal says what to do, and names the URL as the user wrote
    it.
    """
    run(
        database,
        "create user u identified by 'secret1'",
        f"grant all on {database.name}.* to u",
        "flush privileges",
    )
    place = f"{database.host}:{database.port}/{database.name}"
    config = login(database) | {"user": "u", "password": "secret1"}

    def refused(parameters: str) -> str:
        with (
            pytest.raises(SourceError) as caught,
            connected(spark, config | {"jdbc_url": url + parameters}),
        ):
            pass
        return str(caught.value)

    for scheme in ("mysql", "mariadb"):
        url = f"jdbc:{scheme}://{place}"
        for plain in ("", "?sslMode=DISABLED", "?sslMode=disable"):
            assert f"to {url}: " in refused(plain)
            assert (
                "the server wants this password encrypted: put sslMode=verify-full (or trust)"
                in refused(plain)
            )
        for verified in ("?sslMode=VERIFY_IDENTITY", "?sslMode=verify-full", "?useSSL=true"):
            assert (
                "the server's certificate is not known here: name that of its authority"
                in refused(verified)
            )
    run(database, "flush privileges")  # else the server remembers the login
    for encrypted in ("REQUIRED", "PREFERRED", "trust"):
        with connected(spark, config | {"jdbc_url": f"{url}?sslMode={encrypted}"}) as connection:
            ((_, cipher),) = connection.rows("show status like 'Ssl_cipher'")
            assert cipher


# A process each: two versions of one class do not fit into a JVM.
READS = """
import json, sys
from tap.in_process import run_tap
sent = run_tap(json.loads(sys.argv[1])).succeeded()
print(json.dumps([each["record"] for each in sent.messages if each["type"] == "RECORD"],
  sort_keys=True))
"""


@pytest.mark.usefixtures("spark")
def test_other_drivers_return_same_rows(database: MySQLDatabase) -> None:
    """MariaDB's driver 4 and MySQL's own driver are selected by `driver_package` alone."""
    run(
        database,
        "create table t (id bigint unsigned primary key, b tinyint(1), y year, n decimal(10,2), at "
        "datetime(6) not null, ts timestamp(6) null, h time(6), raw blob, note longtext, yes "
        "bit(1), bits bit(9), f float, d double, e enum('x','y'), doc json, day date, key (at))",
        "insert into t values (18446744073709551615, 5, 2155, 1.50, '2025-03-30 02:30:00.000001', "
        "'2025-03-30 02:30:00.5', '-838:59:58', x'00ff', '😀\\\\', 1, 5, 1.1, "
        "-2.2250738585072014e-308, 'x', '{\"a\": 1}', '0001-01-01'), (1, null, null, null, "
        "'2024-01-01', null, null, null, null, null, null, null, null, null, null, null)",
    )
    config = login(
        database, schemas=[database.name], incremental_tables=[f"{database.name}.t:at:datetime"]
    )

    def rows(chosen: dict[str, Any]) -> list[dict[str, Any]]:
        for package in chosen.values():
            cached_jars(package)
        url = {
            "jdbc_url": f"jdbc:mysql://{database.host}:{database.port}/{database.name}"
            "?sslMode=REQUIRED"
        }
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                READS,
                json.dumps(config | url | chosen | {"spark": {"master": "local[2]"}}),
            ],
            cwd=TESTS,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]]),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    sent = run_tap(config).succeeded()
    expected = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
    assert [each["id"] for each in expected] == [1, 18446744073709551615]
    assert expected[1]["d"] == -2.2250738585072014e-308
    assert rows(OWN) == expected
    assert rows(FOURTH) == expected


def test_mysql_driver_streams_rows(database: MySQLDatabase, tmp_path: Path) -> None:
    """80 MB of rows in one slice pass through a heap of 64 MB."""
    run(
        database,
        "set session cte_max_recursion_depth = 20000",
        "create table t (id int, note varchar(4000) character set ascii)",
        "insert into t with recursive s as (select 1 id union all select id + 1 from s where id < "
        "20000) select id, repeat(char(65 + id % 26 using ascii), 4000) from s",
    )
    cached_jars(OWN["driver_package"])
    batches = {"encoding": {"format": "parquet"}, "storage": {"root": str(tmp_path)}}
    config = login(
        database,
        schemas=[database.name],
        batch_config=batches,
        reader="jdbc",
        slice_rows=1_000_000,
        **OWN,
    )
    heap = {
        "spark.driver.memory": "64m",
        "spark.driver.extraJavaOptions": "-Xms64m -XX:NewSize=16m",
    }
    config["spark"] = {"conf": heap}
    config["jdbc_url"] = (
        f"jdbc:mysql://{database.host}:{database.port}/{database.name}?sslMode=REQUIRED"
    )
    written = tmp_path / "tap.json"
    written.write_text(json.dumps(config))
    command = [sys.executable, "-m", "tap_spark_jdbc", "--config", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [pq.read_metadata(each).num_rows for each in tmp_path.rglob("*.parquet")]
    assert sum(files) == 20_000
