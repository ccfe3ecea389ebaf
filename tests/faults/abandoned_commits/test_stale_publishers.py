"""A publisher that sleeps while its run is abandoned changes nothing any more, and no table keeps a
run from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from faults.faulty import DIE_AFTER, Died, Faulty
from faults.iceberg_tables import TwoIcebergTables, catalog_calls, give_up, meanwhile
from faults.rivals.test_foreign_upkeep import CREATES, check, lose_of_changes, waiting
from faults.small_lake import NO_BEATS
from faults.storage.test_delta_faults import (
    CHANGES,
    GROWS,
    LAYOUT,
    TwoTables,
    rows_after,
    store_of,
)
from singer_spark.core.identity import Process
from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.commit.recovery import free
from target_spark_lake.layout import IcebergCatalog


def lose_and_give_up(lake: TwoTables) -> None:
    lose_of_changes(lake)
    with pytest.raises(UnpublishableError, match="LAKE-066"):
        lake.sync()
    give_up(lake)


def check_nothing_came(lake: TwoTables, runs: int) -> None:
    assert [lake.rows(each) for each in (GROWS, CHANGES)] == [
        rows_after(each, runs) for each in (GROWS, CHANGES)
    ]
    check(lake, lake.sync())
    assert lake.committed() == runs + 1


@pytest.mark.parametrize("runs", [0, 2])
def test_no_snapshot_of_an_abandoned_run(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """Where the run was to make the tables, they are made, and empty: so the sleeper does not make
    them.
    """
    lake = TwoIcebergTables(tmp_path)
    for _ in range(runs):
        lake.sync()
    sleeper = meanwhile(lake, GROWS, lambda: lose_and_give_up(lake))
    with catalog_calls(monkeypatch, sleeper), pytest.raises(StorageError):
        lake.sync(process=dead)
    check_nothing_came(lake, runs)


@pytest.mark.parametrize("runs", [0, 2])
def test_no_delta_entry_of_an_abandoned_run(tmp_path: Path, dead: Process, runs: int) -> None:
    """No Delta log entry is made for a run that was abandoned in the meantime."""
    lake = TwoTables(tmp_path)
    for _ in range(runs):
        lake.sync()
    sleeping = lake.met_before_entry(GROWS, lambda: lose_and_give_up(lake))
    with pytest.raises(StorageError):
        lake.sync(sleeping, dead)
    check_nothing_came(lake, runs)


def committed_and_dead(lake: TwoTables, dead: Process, runs: int = 1) -> None:
    """A run that died right after its commit."""
    for _ in range(runs):
        lake.sync()
    with pytest.raises(Died):  # lock, two claims of new tables, journal
        lake.sync(
            lake.storage(lambda files: Faulty(files, 2 if runs else 4, DIE_AFTER, CREATES)), dead
        )
    assert waiting(lake)


def upgrade_iceberg(lake: TwoTables) -> None:
    """What ALTER TABLE … SET TBLPROPERTIES ('format-version'='3') does.

    PyIceberg itself does not.
    """
    assert isinstance(lake, TwoIcebergTables)
    file = Path(lake.table(GROWS).metadata_location.removeprefix("file://"))
    file.write_text(
        json.dumps({**json.loads(file.read_text()), "format-version": 3, "next-row-id": 0})
    )


def upgrade_delta(lake: TwoTables) -> None:
    """What ALTER TABLE … SET TBLPROPERTIES ('delta.columnMapping.mode'='name') does."""
    features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    version = lake.table(GROWS).version() + 1
    (lake.folder / GROWS / "_delta_log" / f"{version:020d}.json").write_text(
        json.dumps(protocol) + "\n"
    )


@dataclass(frozen=True)
class Upgrade:
    """What someone does to a table that the programs can't write to afterwards.

    Attributes:
        says: What the error names.
    """

    kind: type[TwoTables]
    upgrade: Callable[[TwoTables], None]
    says: str


@pytest.fixture(
    params=[
        Upgrade(TwoIcebergTables, upgrade_iceberg, "format version 3"),
        Upgrade(TwoTables, upgrade_delta, "columnMapping"),
    ],
    ids=["iceberg", "delta"],
)
def upgraded(request: pytest.FixtureRequest) -> Upgrade:
    return request.param


def test_table_upgraded_before_commit_is_left_alone(
    tmp_path: Path, dead: Process, upgraded: Upgrade
) -> None:
    """A table upgraded before its commit is left as it is, and the run is abandoned."""
    lake = upgraded.kind(tmp_path)
    committed_and_dead(lake, dead)
    upgraded.upgrade(lake)
    with pytest.raises(
        UnpublishableError, match=rf"LAKE-087 .*{upgraded.says}.*--give-up-publishing"
    ):
        lake.sync()
    assert upgraded.says in waiting(lake).body["error"]
    give_up(lake)
    assert lake.rows(CHANGES) == rows_after(CHANGES, 1)
    assert files_of(lake, GROWS) == 1
    assert json.loads((tmp_path / LAYOUT.state).read_text()) == {"run": 1}


def files_of(lake: TwoTables, table: str) -> int:
    """Of the upgraded table, which not every reader can read."""
    if isinstance(lake, TwoIcebergTables):
        return len(list(lake.table(table).scan().plan_files()))
    return lake.table(table).get_add_actions().num_rows


def test_table_upgraded_after_commit_is_published(
    tmp_path: Path, dead: Process, upgraded: Upgrade
) -> None:
    """A table upgraded after its commit does not keep the run from being published."""
    lake = upgraded.kind(tmp_path)
    lake.sync()
    with pytest.MonkeyPatch.context() as patch:
        for_iceberg = Faulty(None, 1, DIE_AFTER, frozenset({"commit_table"}))
        with (
            catalog_calls(patch, for_iceberg),
            pytest.raises(Died),
        ):  # lock, journal, the log of `grows`
            lake.sync(lake.storage(lambda files: Faulty(files, 3, DIE_AFTER, CREATES)), dead)
    upgraded.upgrade(lake)
    assert free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False).finished
    assert lake.rows(CHANGES) == rows_after(CHANGES, 2)
    assert files_of(lake, GROWS) == 2


def test_run_with_a_relocated_table_is_abandoned(tmp_path: Path, dead: Process) -> None:
    """A table that the catalog has moved leaves a note, and the run is abandoned."""
    lake = TwoIcebergTables(tmp_path)
    committed_and_dead(lake, dead)
    for location in (f"file://{tmp_path}/elsewhere", f"file://{tmp_path}/{GROWS}"):
        move(lake, location)
        if "elsewhere" in location:
            with pytest.raises(UnpublishableError, match=r"LAKE-087 .*--give-up-publishing"):
                lake.sync()
            assert "elsewhere" in waiting(lake).body["error"]
            give_up(lake)
    check(lake, 1)
    check(lake, lake.sync())


def move(lake: TwoIcebergTables, location: str) -> None:
    from pyiceberg.table.update import SetLocationUpdate

    with lake.table(GROWS).transaction() as transaction:
        transaction._apply((SetLocationUpdate.model_validate({"location": location}),))


def test_no_table_in_another_catalog_than_planned(tmp_path: Path, dead: Process) -> None:
    """A table is never created in a catalog other than the one its run was planned with."""
    lake = TwoIcebergTables(tmp_path)
    committed_and_dead(lake, dead, 0)
    other = replace(
        LAYOUT,
        catalog=IcebergCatalog({"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db"}, "sales"),
    )
    with pytest.raises(ConfigurationError, match="LAKE-084"):
        free(lake.storage(), other, store_of(lake), NO_BEATS, force=False)
    assert SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/other.db").list_namespaces() == []
    assert free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False).finished
    check(lake, 1)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "raw.s in catalog lake"),
        (
            {
                "type": "sql",
                "uri": "postgresql+psycopg://me:secret@h:5432/db?password=secret",
                "name": "n",
            },
            "raw.s in catalog n of type sql (postgresql+psycopg://h:5432/db)",
        ),
        (
            {"type": "rest", "uri": "https://h/c", "warehouse": "w"},
            "raw.s in catalog lake of type rest (https://h/c w)",
        ),
        (
            {"type": "glue", "glue.region": "eu-west-1"},
            "raw.s in catalog lake of type glue (eu-west-1)",
        ),
        (
            {"type": "sql", "uri": "sqlite:////tmp/c.db"},
            "raw.s in catalog lake of type sql (sqlite:////tmp/c.db)",
        ),
    ],
)
def test_catalog_description_hides_secrets(properties: dict[str, Any], said: str) -> None:
    assert IcebergCatalog(properties).registered("raw/s", is_new=True) == said
