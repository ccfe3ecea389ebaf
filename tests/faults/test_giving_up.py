"""A committed run whose files are gone, or whose Delta table someone changed: taken back, and all of it comes again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults.backed_lake import BackedLake
from faults.faulty import DIE_AFTER, FAIL_AFTER, FAULTS, Counting, Died, Faulty, Interrupted, Watched
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake
from faults.test_delta_faults import CHANGES, GROWS, TwoTables, is_log_entry, rows_after
from faults.test_delta_faults import LAYOUT as LAYOUT_OF_DELTA
from servers.s3 import S3
from singer_spark.errors import LockedError, SingerSparkError, StateError, StorageError, UnpublishableError
from singer_spark.process.identity import Process
from singer_spark.state.backend import StateBackend
from singer_spark.state.run_log import last_committed
from singer_spark.state.store import BucketState
from singer_spark.storage.storage import Storage
from target_spark_lake.cli import spark_lake
from target_spark_lake.commit.lock import take_lock
from target_spark_lake.commit.recovery import Recovery, free
from target_spark_lake.commit.run_reports import runs, state_history

CREATES = frozenset({"create"})
DELETES = frozenset({"delete"})


def give_up(lake: SmallLake, run_id: str, storage: Storage | None = None, process: Process | None = None) -> Recovery:
    place = storage or lake.storage()
    store = lake.store() or BucketState(place, LAYOUT.state)
    with pytest.MonkeyPatch.context() as patch:
        if process is not None:  # in the name of one that is dead afterwards
            patch.setattr("target_spark_lake.commit.recovery.take_lock", partial(take_lock, process=process))
        return free(place, LAYOUT, store, NO_BEATS, force=False, giving_up=run_id)


def dies_after(lake: SmallLake, dead: Process, nth: int, only: frozenset[str]) -> str:
    """A run that dies after its n-th such call, and was committed by then."""
    with pytest.raises(Died):
        lake.sync(lake.faulty_files(lambda files: Faulty(files, nth, DIE_AFTER, only)), dead)
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert entry.phase == "committed"
    return entry.run_id


def committed_and_dead(lake: SmallLake, dead: Process, moves: int = 0) -> str:
    """A run that died right after its commit, or after so many of its moves."""
    if moves:
        return dies_after(lake, dead, moves, frozenset({"move"}))
    return dies_after(lake, dead, 2 if lake.committed_bound() else 4, CREATES)


def lose(lake: SmallLake, run_id: str, name: str) -> None:
    """A file of the run is gone, wherever it is by now."""
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert entry.run_id == run_id
    (file,) = [file for file in entry.body["publish"] if file["staged"].endswith(name)]
    lake.storage().delete(file["staged"])
    lake.storage().delete(file["final"])


def check_before(lake: SmallLake, bound: int) -> None:
    """Readers see, and the next run finds, what was before the run that was given up."""
    assert lake.published_bound() == bound
    assert (lake.rows("grows"), lake.rows("whole")) == (list(range(bound)), list(range(bound)))
    assert lake.staged_paths() == []


@pytest.fixture(params=["disk", "s3", "state in SQLite"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> SmallLake:
    if request.param == "s3":
        s3: S3 = request.getfixturevalue("s3")
        return SmallLake(s3.new_bucket(), s3.storage_options)
    if request.param == "disk":
        return SmallLake(f"{tmp_path}/lake", {})
    backend = StateBackend.of({"uri": f"sqlite:///{tmp_path}/states.db", "table_name": None}, {})
    return BackedLake(f"{tmp_path}/lake", {}, backend=backend)


@pytest.mark.parametrize("runs_before", [0, 2])
@pytest.mark.parametrize("moves", [0, 2])
def test_a_committed_run_whose_file_is_gone_is_given_up_and_everything_comes_again_once(
    lake: SmallLake, dead: Process, runs_before: int, moves: int
) -> None:
    for _ in range(runs_before):
        lake.sync()
    bound = runs_before * STEP
    run_id = committed_and_dead(lake, dead, moves)
    lose(lake, run_id, "grows/part-1.zstd.parquet")
    wedged = rf"run {run_id} is committed, and 1 of its 3 file.s. are gone, .*recover --give-up-publishing {run_id}"
    for _ in range(2):
        with pytest.raises(UnpublishableError, match=wedged):
            lake.sync()
    (told, *_) = [run for run in runs(lake.storage(), LAYOUT) if run["run_id"] == run_id]
    assert (told["outcome"], told["streams"], "1 of its 3 file(s) are gone" in told["error"]) == ("committed", {}, True)
    done = give_up(lake, run_id)
    assert done.given_up is not None
    assert done.given_up["streams"] == {
        "grows": {"lost_files": 1, "lost_rows": 3, "taken_back_files": 1, "taken_back_rows": 1},
        "whole": {"lost_files": 0, "lost_rows": 0, "taken_back_files": 1, "taken_back_rows": bound + STEP},
    }
    check_before(lake, bound)
    assert give_up(lake, run_id).given_up == done.given_up
    told = {run["run_id"]: run for run in runs(lake.storage(), LAYOUT)}
    assert (told[run_id]["outcome"], told[done.given_up["by"]]["outcome"]) == ("rolled_back", "succeeded")
    assert "given up by run" in told[run_id]["error"]
    assert run_id not in [saved["run_id"] for saved in state_history(lake.storage(), LAYOUT)]
    lake.check_exact(lake.sync())
    assert lake.published_bound() == bound + STEP
    lake.check_exact(lake.sync())


@pytest.mark.parametrize("moves", [0, 3])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_storage_call_of_giving_up_loses_and_repeats_nothing(
    tmp_path: Path, dead: Process, fault: str, moves: int
) -> None:
    """The run is waiting as before, or is given up: never something in between that stays."""

    waits = SmallLake(f"{tmp_path}/waits", {})
    waits.sync()
    run_id = committed_and_dead(waits, dead, moves)
    lose(waits, run_id, "grows/part-1.zstd.parquet")

    def waiting(name: str) -> SmallLake:
        shutil.copytree(waits.url, tmp_path / name)
        return SmallLake(f"{tmp_path}/{name}", {})

    probe = waiting("probe")
    counting: list[Counting] = []
    give_up(probe, run_id, probe.faulty_files(lambda files: counting.append(Counting(files)) or counting[0]))
    check_before(probe, STEP)
    ends = set()
    for nth in range(1, len(counting[0].calls) + 1):
        lake = waiting(str(nth))
        broken = lake.faulty_files(lambda files, nth=nth: Faulty(files, nth, fault))  # type: ignore[misc]
        with suppress(SingerSparkError, Died):
            give_up(lake, run_id, broken, dead)
        rows = lake.rows("grows")
        assert set(range(lake.published_bound())) <= set(rows) <= set(range(2 * STEP))
        assert len(set(rows)) == len(rows)
        entry = last_committed(lake.storage(), LAYOUT.runs)
        assert entry is not None
        is_waiting = entry.run_id == run_id
        ends.add(is_waiting)
        if is_waiting:
            with pytest.raises(UnpublishableError):
                lake.sync()
            give_up(lake, run_id)
            check_before(lake, STEP)
        lake.check_exact(lake.sync())
        assert lake.published_bound() == 2 * STEP
    assert ends == {True, False}


@pytest.mark.parametrize("fault", [FAIL_AFTER, DIE_AFTER])
def test_a_fault_at_any_change_on_s3_while_a_run_is_given_up_loses_and_repeats_nothing(
    s3: S3, dead: Process, fault: str
) -> None:
    changes = frozenset({"write", "copy", "delete"})
    lake = SmallLake(s3.new_bucket(), s3.storage_options)
    bound = lake.sync()
    for nth in range(1, 30):
        run_id = committed_and_dead(lake, dead, 2)
        lose(lake, run_id, "grows/part-1.zstd.parquet")
        faulty: list[Faulty] = []

        def broken(requests: Any, nth: int = nth, faulty: list[Faulty] = faulty) -> Faulty:
            faulty.append(Faulty(requests, nth, fault, changes))
            return faulty[0]

        with suppress(SingerSparkError, Died):
            give_up(lake, run_id, lake.faulty_requests(broken), dead)
        give_up(lake, run_id)
        check_before(lake, bound)
        if faulty[0].count < nth:
            break
    assert nth > 8
    lake.check_exact(lake.sync())


def test_files_that_are_gone_after_the_old_ones_went_leave_what_is_there_and_all_comes_again(
    tmp_path: Path, dead: Process
) -> None:
    """Then no way leads back for that table: what it has stays until the next run, whose rows come once."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = dies_after(lake, dead, 2, DELETES)  # an older lock, then the old file of `whole`
    lose(lake, run_id, "grows/part-1.zstd.parquet")
    give_up(lake, run_id)
    assert (lake.rows("grows"), lake.published_bound()) == (list(range(STEP)), STEP)
    assert lake.rows("whole") == list(range(2 * STEP))
    lake.check_exact(lake.sync())


def test_a_publisher_that_slept_while_its_run_was_given_up_brings_nothing_back(tmp_path: Path, dead: Process) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()

    def meanwhile() -> None:
        entry = last_committed(lake.storage(), LAYOUT.runs)
        assert entry is not None
        lose(lake, entry.run_id, "grows/part-1.zstd.parquet")
        give_up(lake, entry.run_id)

    sleeping = lake.faulty_files(lambda files: Interrupted(files, lambda name, _: name == "move", meanwhile))
    with pytest.raises(StorageError):
        lake.sync(sleeping, dead)
    check_before(lake, STEP)
    lake.check_exact(lake.sync())


def sleeping(lake: SmallLake, fits: Callable[[str, tuple[Any, ...]], bool]) -> Storage:
    """The bucket of a publisher that sleeps before such a call while its run is given up."""

    def meanwhile() -> None:
        entry = last_committed(lake.storage(), LAYOUT.runs)
        assert entry is not None
        lose(lake, entry.run_id, "grows/part-1.zstd.parquet")
        give_up(lake, entry.run_id)

    return lake.faulty_files(lambda files: Interrupted(files, fits, meanwhile))


@pytest.mark.parametrize("runs_before", [0, 2])
def test_a_publisher_that_slept_before_its_state_does_not_write_it_once_its_run_was_given_up(
    tmp_path: Path, dead: Process, runs_before: int
) -> None:
    """The state before is the same value, but never the very text that the sleeper saw."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    for _ in range(runs_before):
        lake.sync()
    with pytest.raises(StorageError, match="something else wrote to"):
        lake.sync(sleeping(lake, lambda name, args: name == "exchange" and args[0] == LAYOUT.state), dead)
    assert lake.published_bound() == runs_before * STEP
    assert lake.rows("grows") == list(range(runs_before * STEP))
    lake.check_exact(lake.sync())


def test_a_publisher_that_slept_before_it_retires_looks_whether_its_run_was_given_up(
    tmp_path: Path, dead: Process
) -> None:
    """What it would retire is the table again."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    moved: list[str] = []

    def before_it_retires(name: str, args: tuple[Any, ...]) -> bool:
        moved.extend(name for _ in "x" if name == "move")
        looks = name == "read" and args[0].startswith(LAYOUT.runs)
        return bool(moved) and (looks or (name == "delete" and args[0].startswith(LAYOUT.table("whole"))))

    with pytest.raises(StorageError, match="given up"):
        lake.sync(sleeping(lake, before_it_retires), dead)
    check_before(lake, STEP)
    lake.check_exact(lake.sync())


def test_what_a_sleeper_could_still_move_is_gone_before_what_it_has_moved(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a bucket, where many requests travel at once."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = committed_and_dead(lake, dead, 2)
    lose(lake, run_id, "grows/part-1.zstd.parquet")
    at_once: list[set[str]] = []

    def each(storage: Storage, action: Callable[[Any], Any], items: Any) -> list[Any]:
        items = list(items)
        if action == storage.delete:
            at_once.append({path.partition("/")[0] for path in items})
        return [action(item) for item in items]

    monkeypatch.setattr("target_spark_lake.commit.publish.each", each)
    give_up(lake, run_id)
    assert at_once == [{".dataspoc"}, {"raw"}]


def test_only_a_committed_run_that_can_t_be_published_is_given_up(tmp_path: Path, dead: Process) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    good = last_committed(lake.storage(), LAYOUT.runs)
    assert good is not None
    with pytest.raises(StateError, match=r"is published, so there is nothing to give up; .*state restore"):
        give_up(lake, good.run_id)
    with pytest.raises(StateError, match="has no run nonsense"):
        give_up(lake, "nonsense")
    run_id = committed_and_dead(lake, dead)
    with pytest.raises(StateError, match="is published"):
        give_up(lake, good.run_id)
    done = give_up(lake, run_id)
    assert (done.finished, done.given_up) == (run_id, None)
    lake.check_exact(2 * STEP)
    run_id = committed_and_dead(lake, dead)
    lose(lake, run_id, "whole/part-0.zstd.parquet")
    living = take_lock(lake.storage(), LAYOUT, NO_BEATS)
    with pytest.raises(LockedError, match="is held by"):
        give_up(lake, run_id)
    living.release()
    by = (give_up(lake, run_id).given_up or {})["by"]
    with pytest.raises(StateError, match=f"takes back run {run_id}"):
        give_up(lake, by)
    failed = next(run["run_id"] for run in runs(lake.storage(), LAYOUT) if run["outcome"] == "rolled_back")
    assert (give_up(lake, failed).given_up or {})["by"] == by
    lake.check_exact(lake.sync())


def test_a_storage_that_only_fails_is_no_reason_to_give_up(tmp_path: Path, dead: Process) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = committed_and_dead(lake, dead)
    broken = lake.faulty_files(lambda files: Faulty(files, 1, FAULTS[0], frozenset({"move"})))
    with pytest.raises(StorageError, match="injected"):
        give_up(lake, run_id, broken)
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert (entry.run_id, "injected" in entry.body["error"]) == (run_id, True)
    lake.check_exact(lake.sync())
    assert all(run["error"] is None for run in runs(lake.storage(), LAYOUT) if run["outcome"] == "succeeded")


def words(lake: SmallLake, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """What `spark-lake` says to programs."""
    config = Path(lake.url).parent / "target.json"
    config.write_text(json.dumps({"bucket": lake.url, "pipeline": "numbers"}))
    capsys.readouterr()
    code = spark_lake.command([*arguments, "--config", str(config), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_status_runs_and_report_say_that_a_committed_run_is_not_published_and_why(
    tmp_path: Path, dead: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = committed_and_dead(lake, dead)
    code, (pipeline,), problems = words(lake, capsys, "status")
    assert (code, pipeline["outcome"], pipeline["running"]) == (1, "committed", False)
    assert f"run {run_id}: committed, but not published yet: the next run, or `spark-lake recover`" in problems
    assert pipeline["streams"]["grows"]["records"] == STEP
    lose(lake, run_id, "grows/part-0.zstd.parquet")
    with pytest.raises(UnpublishableError):
        words(lake, capsys, "recover")
    code, (pipeline,), problems = words(lake, capsys, "status")
    assert (code, pipeline["outcome"], "are gone" in problems) == (1, "committed", True)
    _, (told, _), _ = words(lake, capsys, "runs")
    assert (told["outcome"], told["finished_at"], "are gone" in told["error"]) == ("committed", None, True)
    page = tmp_path / "report.html"
    words(lake, capsys, "report", "--output", str(page))
    assert '<span class="outcome bad">committed</span>' in page.read_text()
    assert "--give-up-publishing" in page.read_text()
    code, done, _ = words(lake, capsys, "recover", "--give-up-publishing", run_id)
    assert (code, done["given_up"]["run_id"], done["finished"]) == (0, run_id, None)
    code, (pipeline,), _ = words(lake, capsys, "status")
    assert (code, pipeline["outcome"]) == (1, "rolled_back")
    lake.sync()
    code, (pipeline,), _ = words(lake, capsys, "status")
    assert (code, pipeline["outcome"]) == (0, "succeeded")


def test_a_run_that_publishes_just_now_is_at_work_and_not_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, seen = SmallLake(f"{tmp_path}/lake", {}), []
    lake.sync()

    def look() -> None:
        seen.append((words(lake, capsys, "status"), words(lake, capsys, "runs")[1][0]["outcome"]))

    lake.sync(lake.faulty_files(lambda files: Interrupted(files, lambda name, _: name == "move", look)))
    ((code, (pipeline,), _), outcome), *_ = seen
    assert (code, pipeline["outcome"], pipeline["running"], outcome) == (0, "succeeded", True, "running")


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
        giving_up=entry.body.get("gives_up", entry.body)["run_id"],
    )


def conflicting(folder: Path, syncs: int, change: Callable[[TwoTables], Any] | None = None) -> TwoTables:
    """A run that has its entry in `grows`, while someone deletes a row of `changes` that it replaces."""
    lake = TwoTables(folder)
    for _ in range(syncs):
        lake.sync()
    busy = lake.storage(
        lambda files: Interrupted(
            files,
            lambda name, args: is_log_entry(name, args) and CHANGES in args[0],
            lambda: (change or (lambda lake: lake.table(CHANGES).delete("id = 5")))(lake),  # type: ignore[arg-type, return-value]
        )
    )
    with pytest.raises(UnpublishableError, match=r"RESTORE TABLE .* or give the run up: .*--give-up-publishing"):
        lake.sync(busy)
    return lake


def check_given_up(lake: TwoTables, syncs: int) -> None:
    """What the run had made of `grows` is taken back; the person's own change stays."""
    assert lake.rows(GROWS) == rows_after(GROWS, syncs)
    assert lake.rows(CHANGES) == [row for row in rows_after(CHANGES, syncs) if row[0] != 5]
    assert json.loads((lake.folder / LAYOUT_OF_DELTA.state).read_text()) == {"run": syncs}
    assert lake.storage().list(".dataspoc/staging") == []


def test_a_delta_conflict_is_given_up_and_the_entries_that_were_made_are_undone(tmp_path: Path) -> None:
    lake = conflicting(tmp_path, 3)
    assert lake.rows(GROWS) == rows_after(GROWS, 4)
    done = give_up_delta(lake)
    assert done.given_up is not None
    assert done.given_up["streams"]["grows"]["taken_back_rows"] == 2
    assert "RESTORE TABLE" in done.given_up["reason"]
    check_given_up(lake, 3)
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
    lake.sync()
    assert lake.rows(GROWS) == rows_after(GROWS, 5)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_storage_call_of_giving_up_a_delta_conflict_leaves_no_entry_half_undone(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    waits = conflicting(tmp_path / "waits", 3)
    probe = waits.copied("probe")
    counting: list[Counting] = []
    give_up_delta(probe, probe.storage(lambda files: counting.append(Counting(files)) or counting[0]))
    for nth in range(1, len(counting[0].calls) + 1):
        lake = waits.copied(nth)
        broken = lake.storage(lambda files, nth=nth: Faulty(files, nth, fault))  # type: ignore[misc]
        with monkeypatch.context() as patch, suppress(SingerSparkError, Died):
            patch.setattr("target_spark_lake.commit.recovery.take_lock", partial(take_lock, process=dead))
            give_up_delta(lake, broken)
        give_up_delta(lake)
        check_given_up(lake, 3)
        assert lake.sync() == 4
        assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))


def test_a_file_of_a_new_delta_table_that_is_gone_leaves_an_empty_table_or_none_and_all_comes_again(
    tmp_path: Path, dead: Process
) -> None:
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


def test_what_someone_has_changed_of_an_entry_since_is_never_taken_back_by_force(tmp_path: Path) -> None:
    """Nothing is decided then, and the text says what to do."""
    lake = conflicting(tmp_path, 3)
    lake.table(GROWS).optimize.compact()
    with pytest.raises(UnpublishableError, match="can't be taken back: someone else changed it, after version 3"):
        give_up_delta(lake)
    entry = last_committed(lake.storage(), LAYOUT_OF_DELTA.runs)
    assert entry is not None
    assert (entry.phase, entry.state) == ("committed", {"run": 4})
    lake.table(GROWS).restore(3)
    give_up_delta(lake)
    check_given_up(lake, 3)


def test_the_state_goes_back_before_the_rows_and_is_the_empty_one_where_none_was(tmp_path: Path, dead: Process) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    with pytest.raises(Died):  # `state.json` is the run's first exchange with nothing before it but its own lock's
        lake.sync(
            lake.faulty_files(
                lambda files: Faulty(files, 1, "the process dies before the call", frozenset({"replace"}))
            ),
            dead,
        )
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert lake.published_bound() == STEP
    lose(lake, entry.run_id, "grows/part-0.zstd.parquet")

    def look() -> None:
        """The state goes back before the rows do."""
        assert lake.rows("whole") or b"replication_key_value" not in (lake.storage().read(LAYOUT.state) or b"")

    give_up(lake, entry.run_id, lake.faulty_files(lambda files: Watched(files, look)))
    assert json.loads(lake.storage().read(LAYOUT.state) or b"") == {"bookmarks": {}}
    assert (lake.rows("grows"), lake.rows("whole")) == ([], [])


def test_a_publisher_that_slept_while_its_run_was_given_up_makes_no_entry_of_a_delta_table(
    tmp_path: Path, dead: Process
) -> None:
    """Not even where a person has put the table back since, so that its entry would fit again."""
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

    sleeping = lake.storage(
        lambda files: Interrupted(files, lambda name, args: is_log_entry(name, args) and GROWS in args[0], meanwhile)
    )
    with pytest.raises(StorageError, match="was taken for dead and replaced"):
        lake.sync(sleeping, dead)
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 3), rows_after(CHANGES, 3))
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
