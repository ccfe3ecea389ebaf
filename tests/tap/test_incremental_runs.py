"""Incremental runs on real databases: nothing lost at the boundary, nothing repeated."""

from collections import Counter

import pytest

from singer_spark.errors import SourceError
from tap.conftest import Tap
from tap.opened import connected

SCRIPT = [
    'create table "ties" ("id" integer not null primary key, "v" varchar(20), "updated_at" timestamp not null)',
    'create table "keyless" ("v" varchar(20), "at" integer)',
    'create table "plain" ("id" integer not null primary key, "v" varchar(20))',
    'create index "ties_at" on "ties" ("updated_at")',
    """insert into "ties" values (1, 'a', '2025-01-01 10:00:00'), (2, 'b', '2025-01-02 10:00:00'),
       (3, 'c', '2025-01-02 10:00:00'), (4, 'd', '2025-01-02 10:00:00')""",
    """insert into "keyless" values ('x', 1), ('twin', 2), ('twin', 2), ('none', null)""",
    """insert into "plain" values (1, 'one'), (2, 'two')""",
]
NEWS = [
    """insert into "ties" values (5, 'late tie', '2025-01-02 10:00:00'), (6, 'new', '2025-01-03 00:00:00')""",
    """update "ties" set "v" = 'changed' where "id" = 3""",
    """insert into "keyless" values ('twin', 2), ('other', 2)""",
    'update "keyless" set "at" = 2 where "at" is null',
]


def life_of_a_pipeline(tap, execute, prefix):
    """First run, idle run, new rows at the boundary and a changed one, idle again: on any database."""
    ties, keyless, plain = f"{prefix}ties", f"{prefix}keyless", f"{prefix}plain"

    first = tap.run("--state", str(tap.folder / "none.json")).succeeded()
    assert first.start == "first"
    assert first.values(ties, "id") == Counter([1, 2, 3, 4])
    assert first.values(keyless, "v") == Counter(["x", "twin", "twin", "none"])
    assert first.values(plain, "id") == Counter([1, 2])
    assert first.final_state["bookmarks"][ties]["replication_key_value"] == "2025-01-02T10:00:00.000000"
    assert plain not in first.final_state["bookmarks"]

    idle = tap.run(state=first.final_state).succeeded()
    assert idle.start == "saved"
    assert idle.states[0] == first.final_state == idle.final_state
    assert idle.records(ties) == []
    assert idle.values(keyless, "v") == Counter(["none"])
    assert idle.values(plain, "id") == Counter([1, 2])

    execute(NEWS)
    next_run = tap.run(state=idle.final_state).succeeded()
    assert next_run.values(ties, "id") == Counter([3, 5, 6])
    assert next_run.values(keyless, "v") == Counter(["twin", "other", "none"])
    assert next_run.final_state["bookmarks"][ties]["replication_key_value"] == "2025-01-03T00:00:00.000000"

    idle = tap.run(state=next_run.final_state).succeeded()
    assert idle.records(ties) == idle.records(keyless) == []
    assert idle.final_state == next_run.final_state


def test_life_of_a_pipeline_on_postgresql(postgres):
    tap, database = postgres(
        ";".join(SCRIPT), incremental_tables=["public.ties:updated_at:timestamp", "public.keyless:at:integer"]
    )
    life_of_a_pipeline(tap, lambda statements: database.execute(";".join(statements)), "public-")


def test_life_of_a_pipeline_on_sqlite(sqlite):
    tap, database = sqlite(";".join(SCRIPT), incremental_tables=["ties:updated_at:timestamp", "keyless:at:integer"])
    life_of_a_pipeline(tap, lambda statements: database.executescript(";".join(statements)), "")


def test_life_of_a_pipeline_on_derby(spark, tmp_path):
    url = f"jdbc:derby:{tmp_path / 'shop'}"

    def execute(statements):
        with connected(spark, {"jdbc_url": f"{url};create=true"}) as connection:
            for statement in statements:
                connection.execute(statement)
        # One JVM at a time may have a Derby database open.
        with pytest.raises(SourceError, match="shutdown"):
            connected(spark, {"jdbc_url": f"{url};shutdown=true"}).__enter__()

    execute(SCRIPT)
    specs = ["APP.ties:updated_at:timestamp", "APP.keyless:at:integer"]
    tap = Tap(tmp_path, {"jdbc_url": url, "incremental_tables": specs, "spark": {"master": "local[2]"}})
    life_of_a_pipeline(tap, execute, "APP-")
