"""Which replication key `spark-lake init` suggests, on real databases."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tap.source.mariadb_pipes import run
from target.ops.init_command import spark_lake

if TYPE_CHECKING:
    from servers.mysql import MySQL
    from servers.postgresql import PostgreSQL

SPEC = re.compile(r"--incremental-table ('[^']+'|[^\s,]+)(?: \((misses[^)]*)\))?")
CREATED = "misses rows that are changed later"


def suggested(database: Any, folder: Path, **more: str) -> dict[str, str | None]:
    """What init suggests by flags alone for the database, and what it says about each; MySQL's
    server has others, too.
    """
    flags = [
        "--jdbc-url",
        database.jdbc_url,
        "--user",
        database.user,
        "--bucket",
        "lake",
        "--pipeline",
        "shop",
    ]
    done = spark_lake(*flags, folder=folder, SHOP_PASSWORD=database.password, **more)
    assert done.returncode == 0, done.stderr
    found = [
        (*shlex.split(spec)[0].split(".", 1), missed) for spec, missed in SPEC.findall(done.stdout)
    ]
    return {
        spec: missed or None
        for schema, spec, missed in found
        if schema in ("public", database.name)
    }


@pytest.mark.slow
def test_key_suggestion_uses_default_and_name(tmp_path: Path, postgresql: PostgreSQL) -> None:
    """The suggestion is the time of the row's last change, not another time, flag or price."""
    shop = postgresql.new_database()
    with psycopg.connect(shop.dsn) as connection:
        connection.execute(
            "create table a (id int primary key, paid_at timestamp, modified timestamp default "
            "now())"
        )
        connection.execute("create index on a (paid_at)")
        connection.execute(
            "create table b (id int, created_at timestamptz default now(), price numeric(9, 2))"
        )
        connection.execute(
            "create table c (id int primary key, born_at timestamp, ts timestamp default "
            "current_timestamp)"
        )
        connection.execute(
            "create table d (id int primary key, paid boolean, paid_at timestamp, due date)"
        )
    assert suggested(shop, tmp_path) == {
        "a:modified:datetime!upsert": None,
        "b:created_at:timestamp!append": CREATED,
        "c:ts:datetime!upsert": f"{CREATED}, unless ts changes too",
    }


@pytest.mark.slow
def test_key_is_suggested_on_mysql(tmp_path: Path, mysql: MySQL) -> None:
    """`ON UPDATE` takes precedence over column names."""
    shop = mysql.new_database()
    run(
        shop,
        "create table a (id int primary key, paid_at datetime, is_new tinyint(1), "
        "stamp timestamp default current_timestamp on update current_timestamp, key (paid_at))",
        "create table b (id int primary key, added_on datetime default current_timestamp, price "
        "decimal(9, 2))",
    )
    found = suggested(shop, tmp_path)
    assert found == {"a:stamp:timestamp!upsert": None, "b:added_on:datetime!upsert": CREATED}
