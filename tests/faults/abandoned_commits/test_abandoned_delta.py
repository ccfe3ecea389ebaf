"""A committed run whose Delta table someone changed is reverted, and all of it comes again."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, Died, Faulty
from faults.small_lake import NO_BEATS, Wrap
from faults.storage.test_delta_faults import CHANGES, GROWS, TwoTables, rows_after
from faults.storage.test_delta_faults import LAYOUT as LAYOUT_OF_DELTA
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from singer_spark.errors import StorageError, UnpublishableError
from singer_spark.state.run_log import last_committed
from singer_spark.state.store import BucketState
from singer_spark.store.storage import Storage
from target_spark_lake.commit.lock import take_lock
from target_spark_lake.commit.recovery import Recovery, free


def give_up_delta(lake: TwoTables, storage: Storage | None = None) -> Recovery:
    place = storage or lake.storage()
    entry = last_committed(lake.storage(), LAYOUT_OF_DELTA.runs)
    assert entry is not None
    return free(
        place,
        LAYOUT_OF_DELTA,
        BucketState(place, LAYOUT_OF_DELTA.state),
        NO_BEATS,
        force=False,
        abandoning=entry.body.get("gives_up", entry.body)["run_id"],
    )


def conflicting(folder: Path, syncs: int) -> TwoTables:
    """A run that has its entry in `grows`, while someone deletes a row of `changes` that it
    replaces.
    """
    lake = TwoTables(folder)
    for _ in range(syncs):
        lake.sync()
    busy = lake.met_before_entry(CHANGES, lambda: lake.table(CHANGES).delete("id = 5"))
    with pytest.raises(UnpublishableError, match=r"LAKE-085 .*RESTORE TABLE.*--give-up-publishing"):
        lake.sync(busy)
    return lake


def check_abandoned(lake: TwoTables, syncs: int) -> None:
    """What the run had made of `grows` is reverted; the other writer's own change stays."""
    assert lake.rows(GROWS) == rows_after(GROWS, syncs)
    assert lake.rows(CHANGES) == [row for row in rows_after(CHANGES, syncs) if row[0] != 5]
    assert json.loads((lake.folder / LAYOUT_OF_DELTA.state).read_text()) == {"run": syncs}
    assert lake.storage().list(".dataspoc/staging") == []


def test_abandoned_delta_conflict_undoes_entries(
    tmp_path: Path,
) -> None:
    """Abandoning a run with a Delta conflict undoes the log entries that were made."""
    lake = conflicting(tmp_path, 3)
    assert lake.rows(GROWS) == rows_after(GROWS, 4)
    done = give_up_delta(lake)
    assert done.abandoned is not None
    assert done.abandoned["streams"]["grows"]["taken_back_rows"] == 2
    assert "RESTORE TABLE" in done.abandoned["reason"]
    check_abandoned(lake, 3)
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
    lake.sync()
    assert lake.rows(GROWS) == rows_after(GROWS, 5)


@pytest.mark.slow
@in_turn
def test_fault_while_abandoning_a_delta_conflict(
    tmp_path: Path,
    dead: Process,
    monkeypatch: pytest.MonkeyPatch,
    faults: tuple[str, ...],
    step: int,
) -> None:
    """A fault while a Delta conflict is abandoned leaves no log entry half undone."""
    waits = conflicting(tmp_path / "waits", 3)

    def given_up(lake: TwoTables, wrap: Wrap) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                "target_spark_lake.commit.recovery.take_lock", partial(take_lock, process=dead)
            )
            give_up_delta(lake, lake.storage(wrap))

    for lake in fault_sweep(waits.copied, given_up, *faults, step=step):
        give_up_delta(lake)
        check_abandoned(lake, 3)
        assert lake.sync() == 4
        assert (lake.rows(GROWS), lake.rows(CHANGES)) == (
            rows_after(GROWS, 4),
            rows_after(CHANGES, 4),
        )


def test_missing_file_of_new_delta_table_is_recovered(tmp_path: Path, dead: Process) -> None:
    """A missing file of a new Delta table leaves it empty or absent; all rows arrive again."""
    lake = TwoTables(tmp_path)
    with pytest.raises(Died):
        logs = frozenset({"create"})  # lock, two claims, journal, the log of `grows`
        lake.sync(lake.storage(lambda files: Faulty(files, 5, DIE_AFTER, logs)), dead)
    assert lake.rows(GROWS) == rows_after(GROWS, 1)
    (gone,) = (tmp_path / CHANGES).glob("*.parquet")
    gone.unlink()
    with pytest.raises(UnpublishableError):
        lake.sync()
    give_up_delta(lake)
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == ([], [])
    assert lake.sync() == 1
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 1), rows_after(CHANGES, 1))


def test_foreign_changes_to_an_entry_are_not_reverted(
    tmp_path: Path,
) -> None:
    """The commit stays published, and the error says what to do."""
    lake = conflicting(tmp_path, 3)
    lake.table(GROWS).optimize.compact()
    with pytest.raises(UnpublishableError, match="LAKE-087"):
        give_up_delta(lake)
    entry = last_committed(lake.storage(), LAYOUT_OF_DELTA.runs)
    assert entry is not None
    assert (entry.phase, entry.state) == ("committed", {"run": 4})
    lake.table(GROWS).restore(3)
    give_up_delta(lake)
    check_abandoned(lake, 3)


def test_stale_publisher_makes_no_delta_entry(tmp_path: Path, dead: Process) -> None:
    """Not even if someone has restored the table since, so that its entry would fit again."""
    lake = TwoTables(tmp_path)
    for _ in range(3):
        lake.sync()
    seen = lake.table(CHANGES).version()

    def meanwhile() -> None:
        lake.table(CHANGES).delete("id = 5")
        with pytest.raises(UnpublishableError):
            lake.sync()
        give_up_delta(lake)
        lake.table(CHANGES).restore(seen)

    sleeping = lake.met_before_entry(GROWS, meanwhile)
    with pytest.raises(StorageError, match="LAKE-061"):
        lake.sync(sleeping, dead)
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 3), rows_after(CHANGES, 3))
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
