"""What a database costs that Spark reads over JDBC: a table of MariaDB, ours against plain Spark
with the same driver.

usage: mariadb.py [--rows N] [--repeat N]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import report
from cases import Case
from environments import CACHE
from measurement import Measurement, measure
from run import middle
from sources.source import DATABASE, Server, Source, started
from works import our_batches, our_pipe, spark_jdbc

LIMIT = 1800
# The table of `shapes.ORDERS`, in MariaDB's words.
TABLE = """
    CREATE TABLE orders (
        id bigint PRIMARY KEY, quantity int, amount decimal(12, 2), weight double, paid boolean,
          sku varchar(20),
        note text, due_on date, updated_at datetime(6) NOT NULL, shipped_at datetime(6),
          reference char(36),
        priority smallint, KEY (updated_at)
    ) SELECT
        seq AS id, seq % 1000 AS quantity, (seq * 7919) % 100000000 / 100 AS amount,
          sqrt(seq) AS weight,
        seq % 3 = 0 AS paid, concat('SKU-', lpad(seq % 50000, 8, '0')) AS sku,
        concat('Order ', seq, ' of customer ', seq * 31 % 200000, ', ', left(md5(seq), 24)) AS note,
        date '2015-01-01' + interval seq % 3650 day AS due_on,
        timestamp '2020-01-01 00:00:00' + interval seq DIV 3 * 11.000137 second AS updated_at,
        timestamp '2020-01-01 00:00:00' + interval seq * 7 second AS shipped_at,
        insert(insert(insert(insert(md5(seq), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0,
          '-') AS reference,
        if(seq % 10 <> 0, seq % 5, NULL) AS priority
    FROM seq_1_to_{rows}
"""
CASES = [
    Case(
        "mariadb-spark", "plain Spark JDBC → Parquet", spark_jdbc, "zstd", against="mariadb-spark"
    ),
    Case(
        "mariadb-batches",
        "**ours, batches by reference**",
        our_batches,
        "zstd",
        against="mariadb-spark",
    ),
    Case("mariadb-pipe", "**ours, records**", our_pipe, "zstd", against="mariadb-spark"),
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures MariaDB, ours against plain Spark.")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the table (3,000,000)")
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs of each case, by turns; the median counts (1)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=[case.name for case in CASES], help="these cases alone"
    )
    return parser.parse_args()


@contextmanager
def mariadb(data: Path) -> Iterator[Server]:
    """Starts the server in folder `data` and an empty database in it; stops it at the end."""
    with started("servers.mariadb", "--data", str(data)) as place:
        with pymysql.connect(**place) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute("SELECT @@pid_file")
            (pid_file,) = cursor.fetchone() or ("",)
        yield Server(**place, kind="mariadb", pid=int(Path(pid_file).read_text()))


def table_of(server: Server, rows: int) -> Source:
    """Makes the table, and reads it once."""
    login = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
    }
    with (
        pymysql.connect(**login, database=DATABASE, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = ''")
        cursor.execute(TABLE.format(rows=rows))
        cursor.execute("ANALYZE TABLE orders")
        cursor.execute(
            "SELECT count(*), CAST(sum(id) AS int), (SELECT data_length FROM "
            "information_schema.tables"
            " WHERE table_schema = database() AND table_name = 'orders') FROM orders"
        )
        count, checksum, size = cursor.fetchone() or (0, 0, 0)
    return Source(server, DATABASE, count, checksum, bytes=size, first_rows=rows)


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = [case for case in CASES if not options.only or case.name in options.only]
    runs: dict[str, list[Measurement]] = {case.name: [] for case in cases}
    with (
        tempfile.TemporaryDirectory(prefix="bench-mariadb-") as data,
        mariadb(Path(data)) as server,
    ):
        source = table_of(server, options.rows)
        for _ in range(options.repeat):
            for case in cases:
                runs[case.name].append(measure(case, source, CACHE / "work" / case.name, LIMIT))
    found = {name: middle(each) for name, each in runs.items()}
    print(
        f"\n{report.machine()}, MariaDB, {options.rows:,} rows of 12 columns, median of "
        f"{options.repeat} run(s)\n"
    )
    print(f"{report.comparison(cases, found)}\n\n{report.split(found)}")
    if any(each.failure for each in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
