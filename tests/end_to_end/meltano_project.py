"""A copy of the project's own meltano.yml, run by the real Meltano."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from end_to_end.pipe import with_engine
from servers.postgresql import Database

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 300
STATE_ID = "dev:tap-spark-jdbc-to-target-spark-lake"
PIPELINE = "dev.tap-spark-jdbc-to-target-spark-lake"
PLUGINS = ("tap-spark-jdbc", "target-spark-lake")

# The demo's shop as far as its rows are counted, where the tap reads without a session of Spark.
SHOP = """
create table customers (id int primary key, name text not null);
insert into customers select n, 'Customer ' || n from generate_series(1, 50) n;
create table orders (
  id int primary key, customer_id int not null, amount numeric(12, 2) not null, state text not null,
  note text, updated_at timestamp not null
);
create index on orders (updated_at);
insert into orders
  select n, n % 50 + 1, n * 1.37, 'new', null, timestamp '2025-01-20 09:00' + n / 5 * interval
    '1 minute'
  from generate_series(1, 340) n;
"""
# One more order at the very minute of the bookmark, two later ones, and an old one that is shipped.
TRADE = """
insert into orders select 340 + n, 7, 19.99, 'new', null,
  timestamp '2025-01-20 10:07' + n * interval '1 minute'
  from generate_series(1, 3) n;
update orders set state = 'shipped', updated_at = '2025-01-20 10:11' where id = 1;
"""


@dataclass(frozen=True)
class Shop:
    """The shop in a database of PostgreSQL.

    Attributes:
        tap: The tap's settings for it.
    """

    database: Database

    @property
    def tap(self) -> dict[str, Any]:
        facts = self.database
        login = {"jdbc_url": facts.jdbc_url, "user": facts.user, "password": facts.password}
        return {**login, "incremental_tables": ["public.orders:updated_at:timestamp"]}

    def variables(self) -> dict[str, str]:
        """The same as Meltano's variables."""
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in self.tap.items()
        }
        return {f"TAP_SPARK_JDBC_{name.upper()}": text for name, text in texts.items()}

    def do(self, sql: str) -> None:
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            connection.execute(sql)


def new_shop(database: Database) -> Shop:
    shop = Shop(database)
    shop.do(SHOP)
    return shop


@dataclass(frozen=True)
class Project:
    """A copy of the Meltano project, with a lake and a shop of its own unless variables say
    otherwise.
    """

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: Path = BIN

    def meltano(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        clean = {
            k: v for k, v in os.environ.items() if not k.startswith(("MELTANO_", "TAP_", "TARGET_"))
        }
        engine = with_engine({}).get("engine")
        clean |= (
            {}
            if engine is None
            else {"TAP_SPARK_JDBC_ENGINE": engine, "TARGET_SPARK_LAKE_ENGINE": engine}
        )
        return subprocess.run(
            [self.programs / "meltano", *arguments],
            cwd=self.root,
            env={**clean, "NO_COLOR": "1", **self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def run(self, *arguments: str, **variables: str) -> str:
        """Runs Meltano, which must succeed; what it said."""
        done = self.meltano(*arguments, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def shop(self, *flags: str) -> None:
        subprocess.run(
            [sys.executable, ROOT / "demo/make_database.py", self.root / ".demo/shop.db", *flags],
            check=True,
        )

    def lake_state(self, pipeline: str = PIPELINE, bucket: str = ".meltano/lake") -> Any:
        return json.loads(
            (self.root / bucket / ".dataspoc/state" / pipeline / "state.json").read_text()
        )

    def query(self, sql: str, bucket: str = ".meltano/lake") -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            for stream in ("orders", "customers"):
                files = self.root / bucket / "raw" / f"*{stream}" / "**/*.parquet"
                connection.execute(f"create view {stream} as from read_parquet('{files}')")
            return connection.sql(sql).fetchall()


def new_project(root: Path, programs: Path = BIN, **variables: str) -> Project:
    root.mkdir(parents=True, exist_ok=True)
    (root / "meltano.yml").write_text((ROOT / "meltano.yml").read_text())
    (root / ".venv").symlink_to(programs.parent)
    return Project(root, variables, programs)
