"""`spark-lake state set | reset | restore`.

Each change is a run of its own, which can be undone.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import DIE_AFTER, DIE_BEFORE, Died, Faulty
from faults.resuming_lake import ResumingLake
from faults.small_lake import (
    LAYOUT,
    NO_BEATS,
    PIPELINE,
    STEP,
    SmallLake,
    Wrap,
    dead_process,
    state_of,
)
from faults.sweep import fault_sweep
from singer_spark.core.identity import Process
from singer_spark.errors import ConfigurationError, LockedError, StateError
from singer_spark.state.run_log import last_committed
from target.increment import increment, lake_with_two_rows
from target.loading import JSON, Lake
from target_spark_lake.commit.pipeline_run import change_state, open_run
from target_spark_lake.ops import spark_lake as admin
from target_spark_lake.ops import state


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(f"{tmp_path}/lake", {})


def spark_lake(lake: SmallLake | Lake, capsys: Any, *words: str, pipeline: str = PIPELINE) -> Any:
    bucket = lake.url if isinstance(lake, SmallLake) else str(lake.folder)
    config = Path(bucket).parent / "target.json"
    config.write_text(json.dumps({"bucket": bucket, "pipeline": pipeline}))
    capsys.readouterr()
    assert admin.command([*words, "--config", str(config), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def saved(lake: SmallLake) -> JSON:
    data = lake.storage().read(LAYOUT.state)
    assert data is not None
    return dict(json.loads(data))


def write_state(lake: SmallLake, value: JSON) -> None:
    lake.storage().replace(LAYOUT.state, json.dumps(value).encode())


def test_state_changes_are_undoable_runs(lake: SmallLake, capsys) -> None:
    lake.sync()
    lake.sync()
    second, first = (run["run_id"] for run in spark_lake(lake, capsys, "runs"))
    for change, becomes in (
        (("set", "--stream", "grows", "--value", "5"), state_of(5)),
        (("reset", "--stream", "grows"), {"bookmarks": {}}),
        (("reset",), {"bookmarks": {}}),
        (("restore", first), state_of(STEP)),
    ):
        shown = spark_lake(lake, capsys, "state", *change)
        assert saved(lake) == becomes
        assert shown["bookmarks"] == becomes["bookmarks"]
        (newest, *_) = spark_lake(lake, capsys, "runs")
        assert newest["kind"].startswith("state ")
        assert (newest["run_id"], newest["outcome"], newest["streams"]) == (
            shown["run_id"],
            "succeeded",
            {},
        )
        assert spark_lake(lake, capsys, "state", "history")[0]["run_id"] == shown["run_id"]
        assert (
            spark_lake(lake, capsys, "state", "restore", second)["bookmarks"]
            == state_of(2 * STEP)["bookmarks"]
        )
        assert (
            spark_lake(lake, capsys, "state", "restore", shown["run_id"])["bookmarks"]
            == becomes["bookmarks"]
        )
        spark_lake(lake, capsys, "state", "restore", second)
    assert lake.sync() == 3 * STEP
    lake.check_exact(3 * STEP)


def test_commands_edit_a_state_kept_elsewhere(tmp_path: Path, capsys) -> None:
    """A state kept elsewhere is changed, restored and shown there."""
    config = tmp_path / "target.json"
    backend = {"uri": f"sqlite:///{tmp_path}/states.db", "table_name": "states"}
    config.write_text(
        json.dumps({"bucket": f"{tmp_path}/lake", "pipeline": PIPELINE, "state_backend": backend})
    )

    def answer(*words: str) -> Any:
        capsys.readouterr()
        assert admin.command([*words, "--config", str(config), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    key = ("--replication-key", "id", "--type", "integer")
    made = answer("state", "set", "--stream", "grows", "--value", "4", *key)
    assert made["bookmarks"] == state_of(4)["bookmarks"]
    assert answer("state", "reset")["bookmarks"] == {}
    assert answer("state", "restore", made["run_id"])["bookmarks"] == made["bookmarks"]
    (shown,) = answer("status")
    assert shown["streams"]["grows"]["replication_key_value"] == 4
    assert not (tmp_path / "lake" / LAYOUT.state).exists()

    # A config that does not say so neither moves the state nor answers from what may be older.
    config.write_text(json.dumps({"bucket": f"{tmp_path}/lake", "pipeline": PIPELINE}))
    for words in (
        ["state", "show"],
        ["compact"],
        ["vacuum"],
        ["recover"],
        ["convert", "--format", "delta"],
    ):
        with pytest.raises(ConfigurationError, match="RUN-034"):
            admin.command([*words, "--config", str(config)])
    assert not (tmp_path / "lake" / LAYOUT.state).exists()


def test_restore_before_returns_to_hand_edited_state(lake, capsys) -> None:
    """`restore --before` undoes a change to a state that was edited by hand."""
    lake.sync()
    write_state(lake, {**state_of(3), "note": "by hand"})
    change = spark_lake(lake, capsys, "state", "set", "--stream", "grows", "--value", "1")
    assert saved(lake) == {**state_of(1), "note": "by hand"}
    spark_lake(lake, capsys, "state", "restore", "--before", change["run_id"])
    assert saved(lake) == {**state_of(3), "note": "by hand"}


def test_unchanged_state_leaves_no_run(lake: SmallLake, capsys) -> None:
    lake.sync()
    (run,) = spark_lake(lake, capsys, "runs")
    for change in (("set", "--stream", "grows", "--value", str(STEP)), ("restore", run["run_id"])):
        spark_lake(lake, capsys, "state", *change)
    assert spark_lake(lake, capsys, "runs") == [run]
    assert not lake.storage().list(LAYOUT.pipeline_staging)


def test_bookmark_is_set_where_its_key_is_known(lake: SmallLake, capsys) -> None:
    """A reset or missing bookmark can be set where its key is known."""
    lake.sync()
    spark_lake(lake, capsys, "state", "reset")
    spark_lake(lake, capsys, "state", "set", "--stream", "grows", "--value", "2")
    assert saved(lake) == state_of(2)
    spark_lake(
        lake, capsys, "state", "set", "--stream", "whole", "--value", "3", "--replication-key", "id"
    )
    assert saved(lake)["bookmarks"]["whole"] == {
        "replication_key": "id",
        "replication_key_value": 3,
    }
    new = ("--stream", "new", "--value", "2025-01-20", "--replication-key", "day", "--type", "date")
    spark_lake(lake, capsys, "state", "set", *new)
    assert saved(lake)["bookmarks"]["new"] == {
        "replication_key": "day",
        "replication_key_value": "2025-01-20",
    }


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (
            ("set", "--stream", "grows", "--value", "x"),
            r"LAKE-101 stream grows: 'x' .*42",
        ),
        (
            ("set", "--stream", "grow", "--value", "1"),
            r"never had a bookmark \(streams of .*: grows, keys, lists, parts, whole\)",
        ),
        (
            ("set", "--stream", "grow", "--value", "1", "--replication-key", "id"),
            "LAKE-101 stream grow: .*--type TYPE",
        ),
        (
            ("set", "--stream", "grows", "--value", "1", "--type", "number"),
            "LAKE-101 --type: .*'number'",
        ),
        (
            ("set", "--stream", "parts", "--value", "1"),
            "LAKE-101 stream parts: ",
        ),
        (
            ("set", "--stream", "keys", "--value", "1"),
            "LAKE-101 stream keys: ",
        ),
        (
            ("set", "--stream", "lists", "--value", "1"),
            "LAKE-101 stream lists: ",
        ),
        (
            ("reset", "--stream", "grow"),
            r"no bookmark of stream grow \(it has: grows, keys, lists, parts\)",
        ),
        (("restore", "nothing"), "no run nothing; `spark-lake state history` names"),
        (("restore", "../x"), r"no run \.\./x"),
    ],
)
def test_impossible_state_change_is_refused(lake: SmallLake, capsys, words, reported) -> None:
    """The refused command leaves no run."""
    lake.sync()
    state = state_of(4)
    state["bookmarks"]["parts"] = {
        "partitions": [{"replication_key_value": 1}],
        "replication_key_value": 1,
    }
    state["bookmarks"]["keys"] = {"replication_key": ["a", "b"], "replication_key_value": "x"}
    state["bookmarks"]["lists"] = {"replication_key": "a", "replication_key_value": [1]}
    write_state(lake, state)
    with pytest.raises(ConfigurationError, match=reported):
        spark_lake(lake, capsys, "state", *words)
    assert saved(lake) == state
    assert len(spark_lake(lake, capsys, "runs")) == 1
    assert lake.sync() == 2 * STEP


def test_foreign_state_can_be_reset_but_not_set(lake: SmallLake, capsys) -> None:
    """A foreign tap's own state can be reset and restored but never set."""
    run = open_run(lake.storage(), LAYOUT)
    change_state(run, lambda _: {"since": "2025"})
    with pytest.raises(ConfigurationError, match="LAKE-100"):
        spark_lake(lake, capsys, "state", "set", "--stream", "grows", "--value", "1")
    spark_lake(lake, capsys, "state", "reset")
    assert saved(lake) == {}
    spark_lake(lake, capsys, "state", "restore", run.run_id)
    assert saved(lake) == {"since": "2025"}


def test_no_command_changes_state_of_a_locked_pipeline(lake: SmallLake, capsys) -> None:
    """No command changes the state while a run holds the pipeline."""
    lake.sync()
    (first,) = spark_lake(lake, capsys, "runs")
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    for words in (
        ("set", "--stream", "grows", "--value", "1"),
        ("reset",),
        ("restore", "--before", first["run_id"]),
    ):
        with pytest.raises(LockedError, match="LAKE-060"):
            spark_lake(lake, capsys, "state", *words)
    assert saved(lake) == state_of(STEP)
    run.leave()


def test_changed_state_is_not_resumed_from_checkpoint(tmp_path: Path, capsys) -> None:
    """A changed state is not resumed from a dead run's checkpoint."""
    lake = ResumingLake(f"{tmp_path}/lake", {})
    lake.sync()
    lake.sync()
    with suppress(Died):
        lake.sync(
            lake.faulty_files(lambda files: Faulty(files, 2, DIE_BEFORE, frozenset({"create"}))),
            dead_process(),
        )
    assert lake.checkpoint() is not None
    with pytest.raises(ConfigurationError):
        spark_lake(lake, capsys, "state", "set", "--stream", "grows", "--value", "x")
    # Upkeep does not spoil what a run left to be continued either.
    for words in (["compact"], ["vacuum"], ["convert", "--format", "delta"]):
        with pytest.raises(LockedError):
            spark_lake(lake, capsys, *words)
    assert lake.checkpoint() is not None
    spark_lake(lake, capsys, "state", "set", "--stream", "grows", "--value", str(STEP))
    assert lake.checkpoint() is None
    assert lake.staged_paths() == []
    assert lake.sync() == 2 * STEP
    assert lake.taken_over() == 0
    # What the user asked for: the rows from the new bookmark on came once more.
    assert lake.rows("grows") == sorted([*range(2 * STEP), *range(STEP, 2 * STEP)])


@pytest.mark.slow
def test_interrupted_state_change_is_atomic(tmp_path: Path) -> None:
    """A state change interrupted at any step is made whole or not at all."""
    dead, outcomes = dead_process(), set()
    writes = frozenset({"create", "exchange", "replace", "delete", "delete_all"})

    def change(lake: SmallLake, wrap: Wrap) -> None:
        set_five(lake, lake.faulty_files(wrap), dead)

    def fresh(fault: str, name: object) -> SmallLake:
        return changed_lake(tmp_path / f"{name} {fault}")

    for fault in (DIE_BEFORE, DIE_AFTER):
        for lake in fault_sweep(
            partial(fresh, fault),
            change,
            fault,
            only=writes,
            least=5,
        ):
            run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
            committed = last_committed(lake.storage(), LAYOUT.runs)
            assert committed is not None
            assert run.committed_state() == saved(lake) == committed.state
            outcomes.add(saved(lake)["bookmarks"]["grows"]["replication_key_value"])
            run.leave()
    assert outcomes == {STEP, 5}


def changed_lake(folder: Path) -> SmallLake:
    lake = SmallLake(str(folder), {})
    lake.sync()
    return lake


def set_five(lake: SmallLake, storage: Any, process: Process) -> None:
    run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, process=process, command="state set")
    state.set_value(run, "grows", "5")


def test_lower_value_keeps_open_transactions(lake: SmallLake, capsys) -> None:
    """A lower value keeps the snapshot of open transactions, and a greater one drops it."""
    lake.sync()
    seen = {"format_version": 1, "system": "7", "xmin": 740, "xmax": 745}
    bookmark = {
        "replication_key": "id",
        "replication_key_value": 9,
        "boundary": {"rows": 1},
        "snapshot": seen,
    }
    for value, kept in ((8, {"snapshot": seen}), (10, {})):
        write_state(lake, {"bookmarks": {"grows": bookmark}})
        spark_lake(lake, capsys, "state", "set", "--stream", "grows", "--value", str(value))
        assert saved(lake)["bookmarks"]["grows"] == {
            "replication_key": "id",
            "replication_key_value": value,
            **kept,
        }


def test_malformed_state_is_refused_by_position(lake: SmallLake, capsys) -> None:
    """A malformed state is refused by line and column; one edited by hand is used."""
    lake.sync()
    lake.storage().replace(LAYOUT.state, b'{\n "bookmarks": nope}')
    for words in (("state", "show"), ("state", "reset"), ("recover",)):
        with pytest.raises(StateError, match=r"RUN-030 .*state\.json.*15"):
            spark_lake(lake, capsys, *words)
    write_state(lake, state_of(2))
    assert spark_lake(lake, capsys, "state", "show")["bookmarks"] == state_of(2)["bookmarks"]
    assert lake.sync() == 2 + STEP
    assert lake.rows("grows") == sorted([*range(STEP), *range(2, 2 + STEP)])


@pytest.mark.usefixtures("without_jvm")
def test_full_run_state_can_be_restored(tmp_path: Path, capsys) -> None:
    """A failed full run keeps the state; after a good one the old state can be restored."""
    lake = lake_with_two_rows(tmp_path / "lake")
    full = [
        {**lake.announced(increment())[0], "value": {}, "start": "full"},
        *lake.announced(increment())[1:],
    ]
    before = lake.state()
    with pytest.raises(Exception, match="the tap died"):
        lake.load(*full[:-1])
    assert lake.state() == before
    lake.load(*full)
    assert lake.state() == {"grows": 7} != before
    (good, failed, first) = spark_lake(lake, capsys, "runs", pipeline="test")
    assert (good["outcome"], failed["outcome"]) == ("succeeded", "failed")
    assert (
        spark_lake(lake, capsys, "state", "restore", first["run_id"], pipeline="test")["bookmarks"]
        == before
    )
    assert lake.state() == before
    assert lake.announced(increment())[0]["value"] == before
    spark_lake(lake, capsys, "state", "restore", "--before", good["run_id"], pipeline="test")
    assert lake.state() == before
