"""A pipeline whose state is kept elsewhere: always the next rows, never twice, whatever dies and
wherever it moves.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults.backed_lake import BackedLake, FaultyStore
from faults.faulty import DIE_AFTER, DIE_BEFORE, FAIL_AFTER, FAIL_BEFORE, Counting, Died, Faulty
from faults.small_lake import LAYOUT, PIPELINE, STEP, SmallLake, bound_of, state_of
from servers.postgresql import PostgreSQL
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import ConfigurationError, SingerSparkError, StateError
from singer_spark.state.backend import StateBackend, open_state_store
from singer_spark.state.run_log import last_committed
from singer_spark.state.source import open_state_source, source_of_target
from singer_spark.state.store import published_state
from target_spark_lake.commit import journal
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.commit.run_reports import state_history, state_now
from target_spark_lake.table.changes import Commit

BUCKET = StateBackend()


def sqlite_at(folder: Path, name: str = "states.db") -> StateBackend:
    return StateBackend(f"sqlite:///{folder}/{name}")


def bare_url(backend: StateBackend) -> str:
    """What a tap is given by `--state`."""
    assert backend.uri is not None
    if backend.uri.startswith(("sqlite", "postgresql")):
        return f"{backend.uri}?pipeline={PIPELINE}"
    return f"{backend.uri}/{LAYOUT.state}"


def tap_bounds(lake: BackedLake) -> set[int]:
    """Where a tap begins: by the target's config, and by the bare URL."""
    config: dict[str, Any] = {
        "bucket": lake.url,
        "pipeline": PIPELINE,
        "storage_options": lake.options,
    }
    if lake.backend.uri is None:
        sources = [
            open_state_source(f"{lake.url}/{LAYOUT.state}", lake.options),
            source_of_target(config),
        ]
    else:
        options = dict(lake.backend.storage_options)
        backend = {"uri": lake.backend.uri, "storage_options": options}
        sources = [
            open_state_source(bare_url(lake.backend), options),
            source_of_target({**config, "state_backend": backend}),
        ]
    return {bound_of(source.saved.value if source.saved else None) for source in sources}


def check_kills(
    lake: BackedLake, dead: Process, faults: tuple[str, ...] = (DIE_BEFORE, DIE_AFTER)
) -> None:
    """Dies at each step between the commit and the published state, and in the next one's
    recovery.
    """
    lake.sync()
    committed = STEP
    for nth in range(1, 6):
        for fault in faults:
            faulty = replace(lake, wrap=lambda store, n=nth, f=fault: FaultyStore(store, n, f))
            with suppress(Died, SingerSparkError):
                faulty.sync(process=dead)
            lake.check_readers_see_committed_rows()
            assert lake.committed_bound() >= committed
            assert tap_bounds(lake) == {lake.committed_bound()}
            committed = lake.sync()
            lake.check_exact(committed)
            assert tap_bounds(lake) == {committed}


@pytest.mark.slow
def test_kill_at_each_step_to_sqlite_is_recovered(tmp_path: Path, dead: Process) -> None:
    """After a kill at any step, the next start finishes and the tap gets the committed state."""
    check_kills(
        BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path)),
        dead,
        (DIE_BEFORE, DIE_AFTER, FAIL_BEFORE, FAIL_AFTER),
    )


def test_killed_at_each_step_to_postgresql_too(
    tmp_path: Path, dead: Process, postgresql: PostgreSQL
) -> None:
    backend = StateBackend(postgresql.new_database().dsn)
    check_kills(BackedLake(f"{tmp_path}/lake", {}, backend), dead, (DIE_BEFORE,))


def test_killed_at_each_step_to_another_folder_too(tmp_path: Path, dead: Process) -> None:
    check_kills(BackedLake(f"{tmp_path}/lake", {}, StateBackend(f"file://{tmp_path}/states")), dead)


def test_state_and_lake_on_different_stores(tmp_path: Path, dead: Process, s3: S3) -> None:
    """The state may be on S3 with the lake on disk, or the reverse."""
    options = s3.storage_options
    on_s3 = StateBackend(s3.new_bucket(), storage_options=options)
    for lake in (
        BackedLake(f"{tmp_path}/lake", {}, on_s3),
        BackedLake(
            s3.new_bucket(), options, StateBackend(f"{tmp_path}/states", storage_options=options)
        ),
    ):
        lake.sync()
        dying = replace(
            lake, wrap=lambda store: FaultyStore(store, 1, DIE_BEFORE, frozenset({"write"}))
        )
        with suppress(Died):
            dying.sync(process=dead)
        assert (lake.published_bound(), lake.committed_bound()) == (STEP, 2 * STEP)
        assert tap_bounds(lake) == {2 * STEP}
        lake.check_exact(lake.sync())


@pytest.mark.slow
def test_death_with_state_in_sqlite_loses_nothing(tmp_path: Path, dead: Process) -> None:
    """With the state in SQLite, a death at any storage call loses and repeats nothing."""
    probe = BackedLake(f"{tmp_path}/probe", {}, sqlite_at(tmp_path, "probe.db"))
    counting = Counting()
    probe.sync(probe.faulty_files(counting))
    for nth in counting.places(DIE_BEFORE):
        lake = BackedLake(f"{tmp_path}/{nth}", {}, sqlite_at(tmp_path, f"{nth}.db"))
        with suppress(Died, SingerSparkError):
            lake.sync(lake.faulty_files(lambda files, n=nth: Faulty(files, n, DIE_AFTER)), dead)
        lake.check_readers_see_committed_rows()
        assert tap_bounds(lake) == {lake.committed_bound()}
        lake.check_exact(lake.sync())


def test_state_follows_changed_state_backend(
    tmp_path: Path, postgresql: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sqlite, folder = sqlite_at(tmp_path), StateBackend(f"{tmp_path}/states")
    server = StateBackend(postgresql.new_database().dsn)
    bound = 0
    # Back to places that hold an older state of their own, too.
    for backend in (BUCKET, sqlite, server, folder, BUCKET, server, sqlite, BUCKET, folder, sqlite):
        lake = BackedLake(f"{tmp_path}/lake", {}, backend)
        found = tap_bounds(lake)
        # A bare URL of a place where nothing is yet means a first run, which the target refuses.
        assert bound in found and found <= {bound, 0}
        caplog.clear()
        bound = lake.sync()
        lake.check_exact(bound)
        assert tap_bounds(lake) == {bound}
        said = [
            record.getMessage()
            for record in caplog.records
            if "The state of pipeline" in record.getMessage()
        ]
        assert len(said) == (0 if bound == STEP else 1)
        bound = lake.sync()
        lake.check_exact(bound)
    assert not Path(f"{tmp_path}/lake", LAYOUT.state).exists(), "nobody edits what is not read"


def test_tap_given_bucket_gets_external_state(
    tmp_path: Path,
) -> None:
    """A tap that is given the bucket gets the state that is kept elsewhere."""
    lake = BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path))
    lake.sync()
    bound = lake.sync()
    saved = open_state_source(f"{lake.url}/{LAYOUT.state}").saved
    assert saved is not None and bound_of(saved.value) == bound


@pytest.mark.parametrize("nth", range(1, 12))
def test_death_during_state_move_loses_nothing(tmp_path: Path, dead: Process, nth: int) -> None:
    before = SmallLake(f"{tmp_path}/lake", {})
    bound = before.sync()
    lake = BackedLake(before.url, {}, sqlite_at(tmp_path))
    changes = frozenset({"replace", "delete", "exchange", "create"})
    with suppress(Died, SingerSparkError):
        files = lake.faulty_files(lambda files: Faulty(files, nth, DIE_AFTER, changes))
        store = FaultyStore(lake.store(), nth, DIE_AFTER)
        open_run(files, LAYOUT, store=store, process=dead).leave()
    config = {"bucket": lake.url, "pipeline": PIPELINE, "state_backend": {"uri": lake.backend.uri}}
    saved = source_of_target(config).saved
    assert saved is not None and bound_of(saved.value) == bound
    assert lake.sync() == bound + STEP
    lake.check_exact(bound + STEP)


def test_moving_state_replaces_no_unsaved_state(tmp_path: Path) -> None:
    """A state that no run saved is not replaced when the state moves."""
    SmallLake(f"{tmp_path}/lake", {}).sync()
    lake = BackedLake(f"{tmp_path}/lake", {}, StateBackend(f"{tmp_path}/states"))
    by_hand = tmp_path / "states" / LAYOUT.state
    by_hand.parent.mkdir(parents=True)
    by_hand.write_text(json.dumps(state_of(1)))
    with pytest.raises(
        StateError,
        match="RUN-033",
    ):
        lake.sync()
    assert json.loads(by_hand.read_text()) == state_of(1)
    (tmp_path / "lake" / LAYOUT.state).unlink()
    with open_in(lake) as run:
        assert run.committed_state() == state_of(1), "now only one is there"


class open_in:
    """An open run that is left without a trace."""

    def __init__(self, lake: BackedLake) -> None:
        self.run = open_run(lake.storage(), LAYOUT, store=lake.store())

    def __enter__(self) -> Any:
        return self.run

    def __exit__(self, *_: object) -> None:
        self.run.leave()


def test_edited_bucket_state_is_moved_as_edited(tmp_path: Path) -> None:
    SmallLake(f"{tmp_path}/lake", {}).sync()
    (tmp_path / "lake" / LAYOUT.state).write_text(json.dumps(state_of(2)))
    lake = BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path))
    with open_in(lake) as run:
        assert run.committed_state() == state_of(2)
    assert lake.published_bound() == 2


def test_edited_state_row_counts_after_publishing(tmp_path: Path) -> None:
    lake = BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path))
    lake.sync()
    store = lake.store()
    assert store.write(state_of(3), store.content())
    with open_in(lake) as run:
        assert run.committed_state() == state_of(3)
    assert tap_bounds(lake) == {3}


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_lakes_with_same_pipeline_share_no_state(tmp_path: Path, kind: str) -> None:
    backend = sqlite_at(tmp_path) if kind == "sqlite" else StateBackend(f"{tmp_path}/states")
    one, other = (BackedLake(f"{tmp_path}/{name}", {}, backend) for name in ("one", "other"))
    bound = one.sync()
    with pytest.raises(StateError, match="RUN-035"):
        other.sync()
    with pytest.raises(StateError, match="RUN-035"):
        _ = source_of_target(
            {"bucket": other.url, "pipeline": PIPELINE, "state_backend": {"uri": backend.uri}}
        ).saved
    assert one.sync() == bound + STEP
    one.check_exact(bound + STEP)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_one_of_two_concurrent_lakes_owns_state(tmp_path: Path, kind: str, by_hand: bool) -> None:
    backend = sqlite_at(tmp_path) if kind == "sqlite" else StateBackend(f"{tmp_path}/states")
    one, other = (BackedLake(f"{tmp_path}/{name}", {}, backend) for name in ("one", "other"))
    for lake in (one, other):
        with open_in(lake):
            pass
    if by_hand:
        other.store().write(state_of(0), None)
    with pytest.raises(SingerSparkError, match="LAKE-065"):
        publish_without_opening(one, tmp_path)
    assert one.published_bound() == 0
    assert one.sync() == 2 * STEP
    with pytest.raises(StateError, match="RUN-035"):
        other.sync()


def publish_without_opening(lake: BackedLake, folder: Path) -> None:
    """A run of one lake.

    Between its start and its commit the other one says that the place is its own.
    """
    store = lake.store()
    other = open_state_store(lake.backend, SmallLake(f"{folder}/other", {}).storage(), PIPELINE)

    class Late:
        location = store.location
        origin = store.origin
        content, signature, register = store.content, store.signature, store.register

        def write(self, *values: Any) -> bool:
            other.register()
            return store.write(*values)

    replace(lake, wrap=lambda _: Late()).sync()


def test_relocated_lake_continues_from_its_state(tmp_path: Path) -> None:
    lake = BackedLake(f"{tmp_path}/here", {}, sqlite_at(tmp_path))
    bound = lake.sync()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = BackedLake(f"{tmp_path}/there", {}, lake.backend)
    assert moved.sync() == bound + STEP
    moved.check_exact(bound + STEP)
    assert tap_bounds(moved) == {bound + STEP}


def test_state_without_journal_stays_with_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state whose run no longer has a journal still belongs to the lake."""
    monkeypatch.setattr(journal, "KEPT_RUNS", 2)
    lake = BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path))
    bound = lake.sync()
    signed = lake.store().signature()
    for _ in range(5):  # runs that leave the state as it is
        run = open_run(lake.storage(), LAYOUT, store=lake.store())
        run.commit(Commit((), None))
    assert lake.store().signature() == signed
    lake.check_exact(bound)
    assert lake.sync() == bound + STEP


def test_command_without_a_backend_keeps_the_state(tmp_path: Path) -> None:
    """A command without a state backend leaves the state where it is."""
    lake = BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path))
    bound = lake.sync()
    with pytest.raises(ConfigurationError, match=r"RUN-034 .*spark_lake_state"):
        open_run(lake.storage(), LAYOUT)
    assert lake.published_bound() == bound
    lake.check_exact(lake.sync())


def test_states_are_shown_from_wherever_they_are(tmp_path: Path) -> None:
    lake = BackedLake(f"{tmp_path}/lake", {}, sqlite_at(tmp_path))
    lake.sync()
    bound = lake.sync()
    last = last_committed(lake.storage(), LAYOUT.runs)
    shown = state_now(lake.storage(), LAYOUT, lake.store())
    assert last is not None and shown["run_id"] == last.run_id
    assert bound_of({"bookmarks": shown["bookmarks"]}) == bound
    assert len(state_history(lake.storage(), LAYOUT)) == 2
    assert published_state(lake.store()) is not None
