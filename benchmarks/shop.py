"""A source whose changes are brought into a lake, and the programs that bring them."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from environments import java_home, jdbc_driver, peer
from sources.source import DATABASE, Server, Source
from works import PIPELINE, PROGRAMS, Command, Work, bare_session, write_json


@dataclass(frozen=True)
class Shop:
    """A table of orders, or all tables of a schema, and the programs that bring what changes in
    it.
    """

    server: Server
    schema: str
    table: str
    folder: Path

    @property
    def jdbc_url(self) -> str:
        return (
            f"jdbc:sqlite:{self.server.host}"
            if self.server.kind == "sqlite"
            else self.server.jdbc_url
        )

    def execute(self, *statements: str) -> None:
        """Each statement in a transaction of its own."""
        with closing(self._connected()) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
                connection.commit()

    def _connected(self) -> Any:
        server = self.server
        if server.kind == "sqlite":
            return sqlite3.connect(server.host)
        if server.kind == "postgresql":
            return psycopg.connect(server.dsn)
        login = {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
        }
        connection = pymysql.connect(**login, database=DATABASE)
        connection.cursor().execute("SET sql_mode = 'PIPES_AS_CONCAT'")
        return connection

    def ours(self) -> Work:
        """Both programs as a user starts them, by batches, into Parquet tables that are merged."""
        programs, lake = Path(sys.executable).parent, self.folder / "lake"
        named = f"{self.schema}.{self.table}" if self.schema else self.table
        tap: dict[str, Any] = {
            "jdbc_url": self.jdbc_url,
            "tables": [named],
            "default_replication_method": "INCREMENTAL",
            "default_replication_key": "updated_at",
            "batch_config": {
                "encoding": {"format": "parquet"},
                "storage": {"root": str(lake / ".dataspoc" / "staging" / "batches")},
            },
        }
        if self.server.user:
            tap |= {"user": self.server.user, "password": self.server.password}
        target = {"bucket": str(lake), "pipeline": PIPELINE, "load_method": "upsert"}
        self.folder.mkdir(parents=True, exist_ok=True)
        state = lake / ".dataspoc" / "state" / PIPELINE / "state.json"
        given = ["--config", write_json(self.folder / "tap.json", tap), "--state", str(state)]
        return Work(
            [
                Command("tap", [str(programs / "tap-spark-jdbc"), *given]),
                Command(
                    "target",
                    [
                        str(programs / "target-spark-lake"),
                        "--config",
                        write_json(self.folder / "target.json", target),
                    ],
                ),
            ],
            relation=f"read_parquet('{lake}/raw/*/*.parquet')",
        )

    def dlt(self) -> Work:
        """dlt: `sql_table` by pyarrow, merged into a Delta table."""
        output, server = self.folder / "dlt-lake", self.server
        url = f"sqlite:///{server.host}" if server.kind == "sqlite" else server.dsn
        url = url.replace("postgresql://", "postgresql+psycopg2://").replace(
            "mysql://", "mysql+pymysql://"
        )
        argv = [
            str(peer("dlt") / "python"),
            str(PROGRAMS / "dlt_to_delta.py"),
            url,
            self.schema,
            self.table,
        ]
        return Work([Command("dlt", [*argv, str(output)])], output=output / "raw" / self.table)

    def session(self, table: str) -> Work:
        """A bare Spark session that counts one table."""
        if self.server.kind != "sqlite":
            return bare_session(Source(self.server, self.schema, 0, 0, table), self.folder)
        jar, driver = jdbc_driver("sqlite")
        argv = [
            sys.executable,
            str(PROGRAMS / "spark_count.py"),
            self.jdbc_url,
            "",
            "",
            driver,
            table,
            str(jar),
        ]
        return Work([Command("spark", argv, {"JAVA_HOME": str(java_home())})])
