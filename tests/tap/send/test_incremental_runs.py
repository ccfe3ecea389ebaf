"""Incremental runs on real databases: nothing lost at the boundary, nothing repeated."""

from collections import Counter

from tap.dying import Pipe

SCRIPT = [
    'create table "ties" ("id" integer not null primary key, "v" varchar(20), "updated_at" '
    "timestamp not null)",
    'create table "keyless" ("v" varchar(20), "at" integer)',
    'create table "plain" ("id" integer not null primary key, "v" varchar(20))',
    'create index "ties_at" on "ties" ("updated_at")',
    """insert into "ties" values (1, 'a', '2025-01-01 10:00:00'), (2, 'b', '2025-01-02 10:00:00'),
       (3, 'c', '2025-01-02 10:00:00'), (4, 'd', '2025-01-02 10:00:00')""",
    """insert into "keyless" values ('x', 1), ('twin', 2), ('twin', 2), ('none', null)""",
    """insert into "plain" values (1, 'one'), (2, 'two')""",
]
NEWS = [
    """insert into "ties" values (5, 'late tie', '2025-01-02 10:00:00'), (6, 'new',
      '2025-01-03 00:00:00')""",
    """update "ties" set "v" = 'changed' where "id" = 3""",
    """insert into "keyless" values ('twin', 2), ('other', 2)""",
    'update "keyless" set "at" = 2 where "at" is null',
]


def life_of_a_pipeline(pipe, execute, prefix):
    """First run, idle run, new rows at the boundary and a changed one, idle again; on any
    database.
    """
    ties, keyless, plain = f"{prefix}ties", f"{prefix}keyless", f"{prefix}plain"

    first = pipe.run()
    assert first.start == "first"
    assert first.ids(ties) == Counter([1, 2, 3, 4])
    assert first.values(keyless, "v") == Counter(["x", "twin", "twin", "none"])
    assert first.ids(plain) == Counter([1, 2])
    assert first.final["bookmarks"][ties]["replication_key_value"] == "2025-01-02T10:00:00.000000"
    assert plain not in first.final["bookmarks"]

    pipe.save(first.final)
    idle = pipe.run()
    assert idle.start == "saved"
    assert idle.states[0]["value"] == first.final == idle.final
    assert idle.ids(ties) == Counter()
    assert idle.values(keyless, "v") == Counter(["none"])
    assert idle.ids(plain) == Counter([1, 2])

    execute(NEWS)
    news = pipe.run()
    assert news.ids(ties) == Counter([3, 5, 6])
    assert news.values(keyless, "v") == Counter(["twin", "other", "none"])
    assert news.final["bookmarks"][ties]["replication_key_value"] == "2025-01-03T00:00:00.000000"

    pipe.save(news.final)
    idle = pipe.run()
    assert idle.ids(ties) == idle.values(keyless, "v") == Counter()
    assert idle.final == news.final


def test_incremental_pipeline_on_postgresql(spark, postgres, tmp_path):
    tap, database = postgres(
        ";".join(SCRIPT),
        incremental_tables=["public.ties:updated_at:timestamp", "public.keyless:at:integer"],
    )
    pipe = Pipe(tmp_path / "lake", tap.config)
    life_of_a_pipeline(pipe, lambda statements: database.execute(";".join(statements)), "public-")


def test_incremental_pipeline_on_sqlite(spark, sqlite, tmp_path):
    tap, database = sqlite(
        ";".join(SCRIPT), incremental_tables=["ties:updated_at:timestamp", "keyless:at:integer"]
    )
    pipe = Pipe(tmp_path / "lake", tap.config)
    life_of_a_pipeline(pipe, lambda statements: database.executescript(";".join(statements)), "")
