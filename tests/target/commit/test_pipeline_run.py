"""One run of a pipeline: what a commit changes, what it costs, what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import Counting, Proxy
from faults.small_lake import LAYOUT, NO_BEATS, PIPELINE, STEP, SmallLake, dead_process, state_of
from servers.s3 import S3
from singer_spark.error_codes import RunCode
from singer_spark.errors import (
    LockedError,
    ProtocolError,
    StateError,
    StorageError,
    register_secret,
)
from singer_spark.state.run_log import last_committed
from target.commit.opened_runs import journal_of, lake, opened
from target_spark_lake.commit.journal import Plan
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.commit.publish import publish
from target_spark_lake.table.changes import Commit, TableChange

__all__ = ["lake"]


def test_journal_records_whole_commit(lake: SmallLake) -> None:
    lake.sync()
    run = opened(lake)
    reports = run.commit(
        Commit((lake.appended(run, 2 * STEP), lake.overwritten(run, 2 * STEP)), state_of(2 * STEP))
    )
    body = journal_of(lake, run.run_id)
    assert body["format_version"] == 1
    assert (body["pipeline"], body["phase"], body["outcome"]) == (
        PIPELINE,
        "published",
        "succeeded",
    )
    assert body["state"] == state_of(2 * STEP)
    assert body["previous_state"] == state_of(STEP)
    assert len(body["publish"]) == 3
    assert len(body["retire"]) == 1
    assert reports["grows"].records == STEP
    assert reports["grows"].files == 2
    assert reports["whole"].records == 2 * STEP


def test_commit_without_state_keeps_saved_state(lake: SmallLake) -> None:
    lake.sync()
    before = lake.storage().read(LAYOUT.state)
    run = opened(lake)
    run.commit(Commit((lake.appended(run, 2 * STEP),), None))
    assert lake.storage().read(LAYOUT.state) == before
    assert opened(lake).committed_state() == state_of(STEP)


def test_idle_run_touches_neither_state_nor_tables(lake: SmallLake) -> None:
    lake.sync()
    file = Path(lake.url) / LAYOUT.state
    before, listed = file.stat(), lake.storage().list("raw")
    run = opened(lake)
    run.commit(Commit((TableChange("grows", LAYOUT.table("grows")),), state_of(STEP)))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert lake.storage().list("raw") == listed
    assert journal_of(lake, run.run_id)["state"] is None
    lake.check_exact(STEP)


def test_publishing_again_changes_nothing(lake: SmallLake) -> None:
    lake.sync()
    storage = lake.storage()
    entry = last_committed(storage, LAYOUT.runs)
    assert entry is not None
    run = opened(lake)
    for _ in range(2):
        publish(run._lock, run._store, entry)
    run.fail(RuntimeError("only looked"))
    lake.check_exact(STEP)
    assert Plan.of(entry).publish


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_incomplete_staged_file_stops_commit(lake: SmallLake, damage: str) -> None:
    """A missing or truncated staged file stops the run before its commit."""
    lake.sync()
    run = opened(lake)
    change = lake.appended(run, 2 * STEP)
    path = change.staged[0].path
    lake.storage().delete(path) if damage == "missing" else lake.storage().replace(path, b"PAR1")
    with pytest.raises(StorageError, match=rf"LAKE-070 .*{path}") as stopped:
        run.commit(Commit((change,), state_of(2 * STEP)))
    run.fail(stopped.value)
    assert journal_of(lake, run.run_id)["outcome"] == "failed"
    lake.check_exact(STEP)


def test_failed_run_leaves_only_a_masked_report(lake: SmallLake) -> None:
    """A failed run leaves only its report, with all secrets masked."""
    lake.sync()
    register_secret("pass-phrase-9")
    run = opened(lake)
    lake.appended(run, 2 * STEP)
    run.fail(StorageError(RunCode.STORAGE_FAILED, "can't reach jdbc://me:pass-phrase-9@host"))
    body = journal_of(lake, run.run_id)
    assert (body["phase"], body["outcome"]) == ("aborted", "failed")
    assert body["error"] == "RUN-052 can't reach jdbc://me:*****@host"
    lake.check_exact(STEP)


def test_stopped_run_report_names_cause(lake: SmallLake) -> None:
    run = opened(lake)
    run.fail(KeyboardInterrupt())
    assert journal_of(lake, run.run_id)["error"] == "stopped by KeyboardInterrupt"


def test_error_after_commit_does_not_undo_it(lake: SmallLake) -> None:
    run = opened(lake)
    run.commit(Commit((lake.appended(run, STEP), lake.overwritten(run, STEP)), state_of(STEP)))
    run.fail(BrokenPipeError("standard output is closed"))
    assert journal_of(lake, run.run_id)["outcome"] == "succeeded"
    lake.check_exact(STEP)


class Forgetful(Proxy):
    """A store that says that journals are there already, and has none."""

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        if name == "create" and args[0].startswith(LAYOUT.runs):
            raise FileExistsError
        return call()


def test_undecided_run_is_left_to_next_run(
    lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lock remains, so that the next run rolls it back."""
    lake.sync()
    run = open_run(
        lake.faulty_files(Forgetful), LAYOUT, lock_ttl_seconds=NO_BEATS, process=dead_process()
    )
    run.fail(RuntimeError("the source is gone"))
    assert "LAKE-068 " in caplog.text
    assert lake.storage().read(LAYOUT.journal(run.run_id)) is None
    lake.check_exact(lake.sync())
    assert journal_of(lake, run.run_id)["outcome"] == "rolled_back"


def test_overwrite_retires_only_files_of_its_table(lake: SmallLake) -> None:
    """An overwrite retires the files of its table and nothing else."""
    storage = lake.storage()
    stays = (
        "raw/whole2/a.parquet",
        "raw/whole/notes.txt",
        "raw/whole/nested-table/a.parquet",
        "raw/grows/a.parquet",
    )
    for path in (*stays, "raw/whole/day=1/hour=2/a.parquet", "raw/whole/b.parquet"):
        storage.replace(path, b"x")
    run = opened(lake)
    assert run.table_files("raw/whole") == (
        "raw/whole/b.parquet",
        "raw/whole/day=1/hour=2/a.parquet",
    )
    run.fail(RuntimeError("only looked"))
    assert all(storage.exists(path) for path in stays)


@pytest.mark.parametrize(
    ("start", "value", "allowed"),
    [
        ("saved", STEP, True),
        ("saved", 2 * STEP, False),
        ("first", 0, False),
        ("full", 0, True),
        (None, 99, True),
    ],
)
def test_run_must_start_from_saved_state(
    lake: SmallLake, start: str | None, value: int, allowed: bool
) -> None:
    """A run must start from the saved state unless it is a full run."""
    lake.sync()
    run = opened(lake)
    if allowed:
        run.check_start(start, state_of(value))
    else:
        with pytest.raises(StateError, match="LAKE-063"):
            run.check_start(start, state_of(value))
    run.fail(RuntimeError("only looked"))


def test_first_run_may_start_without_saved_state(lake: SmallLake) -> None:
    run = opened(lake)
    run.check_start("first", {})
    with pytest.raises(StateError):
        run.check_start("saved", state_of(STEP))
    with pytest.raises(ProtocolError, match=r"LAKE-004 .*sideways"):
        run.check_start("sideways", {})
    run.fail(RuntimeError("only looked"))


def test_malformed_state_stops_run_and_frees_lock(lake: SmallLake) -> None:
    """A malformed saved state stops the run and releases the pipeline's lock."""
    lake.sync()
    good = lake.storage().read(LAYOUT.state)
    assert good is not None
    lake.storage().replace(LAYOUT.state, good[:20])
    for _ in range(2):
        with pytest.raises(StateError, match="RUN-030"):
            opened(lake)
    lake.storage().replace(LAYOUT.state, good)
    lake.check_exact(lake.sync())


def test_reverted_run_cannot_commit(lake: SmallLake) -> None:
    """A run that was reverted cannot commit, whatever it staged."""
    run = opened(lake)
    change = lake.appended(run, STEP)
    open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, force=True).fail(
        RuntimeError("enough")
    )
    lake.storage().replace(change.staged[0].path, b"x" * change.staged[0].bytes)
    lake.storage().replace(change.staged[1].path, b"x" * change.staged[1].bytes)
    with pytest.raises(LockedError):
        run.commit(Commit((change,), state_of(STEP)))
    run._lock.stop()
    assert lake.rows("grows") == []


def commit_calls(lake: SmallLake) -> list[str]:
    """The storage calls of one append, from the taking of the lock to its giving up."""
    counting: list[Counting] = []
    storage = lake.faulty_files(lambda files: counting.append(Counting(files)) or counting[0])
    run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS)
    run.commit(Commit((lake.appended(run, 2 * STEP),), state_of(2 * STEP)))
    return counting[0].calls


@pytest.mark.slow
def test_append_calls_are_independent_of_table_size(tmp_path: Path) -> None:
    """An append makes the same storage calls for a table of 10 files or 10,000."""
    calls = []
    for files in (10, 10_000):
        lake = SmallLake(f"{tmp_path}/{files}", {})
        lake.sync()
        for number in range(files):
            (Path(lake.url) / f"raw/grows/old-{number}.parquet").touch()
        calls.append(commit_calls(lake))
    assert calls[0] == calls[1]


def test_s3_requests_of_append_ignore_table_size(s3: S3) -> None:
    """An append on S3 makes the same requests, whatever the table holds."""
    requests = []
    for files in (1, 40):
        lake = SmallLake(s3.new_bucket(), s3.storage_options)
        lake.sync()
        for number in range(files):
            lake.storage().replace(f"raw/grows/old-{number}.parquet", b"")
        counting: list[Counting] = []
        storage = lake.faulty_requests(
            lambda inner, counting=counting: counting.append(Counting(inner)) or counting[0]
        )
        run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS)
        run.commit(Commit((lake.appended(run, 2 * STEP),), state_of(2 * STEP)))
        requests.append(sorted(counting[0].calls))
    assert requests[0] == requests[1]
