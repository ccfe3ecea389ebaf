"""A real `tap | target` over the binlog, killed at STATE lines and at steps of the commit: each
change comes once.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pymysql
import pytest

from end_to_end.live_pipe import TAP, TARGET, LivePipe, Victim
from end_to_end.pipe import Pipe
from end_to_end.relay import Moment
from faults import killed_target
from faults.pipe_rounds import BOTH, Kill, behind, step
from servers.mariadb import MariaDB

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
TAP_9, TARGET_9 = Victim(TAP), Victim(TARGET)
TABLES = (
    "create table orders (id int primary key, version int, note varchar(60)) character set latin1",
    "create table visits (id int, version int)",
    "insert into orders select seq, 0, 'old é' from (with recursive s(seq) as (select 1 union all "
    "select seq + 1 from s where seq < 300) select seq from s) n",
    "insert into visits select id, 0 from orders",
)


class Shop:
    """Orders that change and go, visits that only come, and all that ever was said of either."""

    def __init__(self, connection: pymysql.Connection, chance: random.Random) -> None:
        self.connection, self.chance = connection, chance
        self.histories: list[Counter[tuple[Any, ...]]] = []
        self.version = 0

    def begin(self) -> None:
        """The table may have been read now: then what came and went before is in no history."""
        with self.connection.cursor() as cursor:
            cursor.execute("select id, version from visits")
            self.histories.append(Counter((*row, False) for row in cursor.fetchall()))

    def change(self) -> None:
        """A few transactions, some of which are rolled back."""
        with self.connection.cursor() as cursor:
            for _ in range(6):
                self.version += 1
                low, version = self.chance.randrange(1, 280), self.version
                cursor.execute("begin")
                cursor.execute(
                    f"update orders set version = {version}, note = 'ß{version}' where id between "
                    f"{low} and {low + 9}"
                )
                cursor.execute(f"delete from orders where id = {low + 20}")
                cursor.execute(f"insert into orders values ({1000 + version}, {version}, 'new')")
                cursor.execute(
                    f"insert into visits values ({version}, {version}), ({version}, {version})"
                )
                cursor.execute(
                    f"delete from visits where id = {version} and version = {version} limit 1"
                )
                if kept := self.chance.random() < 0.8:
                    for history in self.histories:
                        history.update({(version, version, False): 2, (version, version, True): 1})
                cursor.execute("commit" if kept else "rollback")

    @property
    def orders(self) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute("select id, version, note from orders order by id")
            return list(cursor.fetchall())


@pytest.mark.parametrize(
    ("name", "first", "later"),
    [
        (
            "mariadb",
            [behind(3, TAP_9), step("before create /runs/"), Kill()],
            [behind(4, TARGET_9), step("after create /runs/")],
        ),
        (
            "mysql",
            [Kill()],
            [behind(3, *BOTH), step("before delete raw/")],
        ),
    ],
    ids=["mariadb", "mysql"],
)
def test_kills_lose_no_binlog_change(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, first: list[Kill], later: list[Kill]
) -> None:
    """After kills at STATE lines and commit steps, each change is in a history once."""
    server: MariaDB = request.getfixturevalue(name)
    database = server.new_database()
    logged = {"replication_method": "LOG_BASED"}
    prefix = database.name
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "schemas": [prefix],
        "stream_options": {
            f"{prefix}-orders": logged,
            f"{prefix}-visits": {**logged, "load_method": "append-only"},
        },
        "spark": {
            "master": "local[2]",
            "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
        },
        "slice_rows": 60,
        # With a limit of rows the state is sent behind each transaction.
        "max_run_rows": 1_000_000,
    }
    pipe = Pipe(tmp_path / "run", tap, {"bucket": str(tmp_path / "lake"), "hard_delete": True})
    with database.connect() as connection:
        with connection.cursor() as cursor:
            for each in TABLES:
                cursor.execute(each)
        shop = Shop(connection, random.Random(5))
        killed = 0
        for number, kill in enumerate([*first, *later], start=1):
            killed += round_of(pipe, kill)
            # The table was read by the run of the first commit, or by one that died before it and
            # was continued: whether its checkpoint came before its death is a matter of time.
            if number <= len(first):
                shop.begin()
            shop.change()
        assert killed == sum(kill != Kill() for kill in [*first, *later])
        round_of(pipe, Kill())
        assert pipe.rows(f"{prefix}-orders", "id, version, note") == shop.orders
        visits = pipe.rows(f"{prefix}-visits", "id, version, _sdc_deleted_at is not null")
        assert Counter(visits) in shop.histories


def round_of(pipe: Pipe, kill: Kill) -> bool:
    """One run; whether something was killed in it."""
    modules = os.pathsep.join([str(killed_target.TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    environment = {
        "PYTHONPATH": modules,
        **({killed_target.KILLED_AT: kill.step} if kill.step else {}),
    }
    with LivePipe(
        pipe,
        *("--state", str(pipe.state_path)),
        moment=Moment(states=kill.states) if kill.states else None,
        victims=kill.victims,
        target=killed_target.command(pipe.target_command()[1:]) if kill.is_of_target else None,
        environment=environment,
    ) as live:
        ended = live.wait()
    print(kill, ended.codes, ended.start, ended.sent.total())  # seen with a failure
    dead = ended.struck or bool(kill.step)
    assert dead or ended.codes == (0, 0), ended.outcome
    return dead
