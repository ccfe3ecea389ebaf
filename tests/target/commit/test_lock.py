"""The run lock: one holder, known by name, replaced only when it is dead or silent for too long."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from end_to_end.marked import until
from faults.faulty import Interrupted
from faults.small_lake import NO_BEATS, dead_process
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import ConfigurationError, LockedError, StorageError
from singer_spark.store.storage import Storage
from target_spark_lake.commit.lock import newest_entry, next_run_id, take_lock
from target_spark_lake.layout import Layout

LAYOUT = Layout("p")
ELSEWHERE = Process("far-away", "another machine", 4711, "")


@pytest.fixture(params=["disk", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "disk":
        return Storage(f"{tmp_path}/lake")
    server: S3 = request.getfixturevalue("s3")
    return Storage(server.new_bucket(), server.storage_options)


def generations(storage: Storage) -> list[int]:
    return [int(Path(file.path).stem) for file in storage.list(LAYOUT.locks)]


def test_second_run_reports_lock_holder_and_start(storage: Storage) -> None:
    held = take_lock(storage, LAYOUT, NO_BEATS)
    process = held.entry.process
    since = held.entry.since.strftime("%Y-%m-%dT%H:%M:%S")
    with pytest.raises(LockedError, match=rf"LAKE-060 .*{process.pid}.*{process.host}.*{since}"):
        take_lock(storage, LAYOUT, NO_BEATS)
    held.release()


def test_released_lock_is_taken_with_next_generation(
    storage: Storage,
) -> None:
    """A released lock is taken at once, with the next generation and a greater run id."""
    first = take_lock(storage, LAYOUT, NO_BEATS)
    first.release()
    second = take_lock(storage, LAYOUT, NO_BEATS)
    assert second.entry.generation == first.entry.generation + 1
    assert second.entry.run_id > first.entry.run_id
    second.forget_earlier()
    second.release()
    assert generations(storage) == [second.entry.generation]


def test_lock_of_dead_local_process_is_taken_over(storage: Storage) -> None:
    """The lock of a dead process on this machine is taken over at once."""
    take_lock(storage, LAYOUT, NO_BEATS, process=dead_process()).stop()
    take_lock(storage, LAYOUT, NO_BEATS).release()
    entry = newest_entry(storage, LAYOUT)
    assert entry is not None
    assert entry.process == Process.this()


def test_remote_lock_is_held_until_heartbeat_expires(
    tmp_path: Path,
) -> None:
    """A lock held on another machine stays held until its heartbeat expires."""
    storage = Storage(str(tmp_path))
    lock = take_lock(storage, LAYOUT, NO_BEATS, process=ELSEWHERE)
    assert lock.entry.is_held()
    silent = replace(lock.entry, beat=datetime.now(UTC) - timedelta(seconds=NO_BEATS + 1))
    assert not silent.is_held()
    with pytest.raises(LockedError, match="LAKE-060"):
        take_lock(storage, LAYOUT, NO_BEATS)
    lock.stop()


def test_silent_local_process_keeps_its_lock(
    tmp_path: Path,
) -> None:
    """A living process on this machine keeps its lock, however long it is silent."""
    lock = take_lock(Storage(str(tmp_path)), LAYOUT, NO_BEATS)
    assert replace(lock.entry, beat=datetime.now(UTC) - timedelta(days=365)).is_held()
    lock.release()


def test_signs_of_life_come_by_themselves(tmp_path: Path) -> None:
    beaten = threading.Event()
    plain = Storage(str(tmp_path))
    files = Interrupted(plain.files, lambda name, _: name == "exchange", beaten.set)
    lock = take_lock(Storage(str(tmp_path), files=files), LAYOUT, 0.1)
    assert beaten.wait(60)
    lock.release()
    entry = newest_entry(plain, LAYOUT)
    assert entry is not None
    assert entry.beat > entry.since


def test_heartbeat_continues_after_any_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even an exception that no store is known to raise does not stop the heartbeat."""
    storage = Storage(f"{tmp_path}/lake")
    lock, failed = take_lock(storage, LAYOUT, 0.1), threading.Event()
    write = lock._write

    def fails_once(*, released: bool) -> None:
        if not failed.is_set():
            failed.set()
            raise TypeError("not of a store")
        write(released=released)

    monkeypatch.setattr(lock, "_write", fails_once)
    assert failed.wait(10)
    before = newest_entry(storage, LAYOUT)
    assert before is not None
    until(
        lambda: (now := newest_entry(storage, LAYOUT)) and now.beat > before.beat,
        "the next sign of life",
    )
    lock.release()


def test_earlier_generation_kept_until_run_recovered(tmp_path: Path) -> None:
    """Who dies in between must not make the next one forget the first."""
    storage = Storage(str(tmp_path))
    first = take_lock(storage, LAYOUT, NO_BEATS, process=dead_process())
    second = take_lock(storage, LAYOUT, NO_BEATS, process=dead_process())
    third = take_lock(storage, LAYOUT, NO_BEATS)
    assert [entry.run_id for entry in third.earlier] == [first.entry.run_id, second.entry.run_id]
    third.forget_earlier()
    assert generations(storage) == [3]
    for lock in (first, second, third):
        lock.stop()


def test_late_contender_cannot_displace_holder(tmp_path: Path) -> None:
    """The contender creates generation 2 when 3 is held and the earlier 2 is deleted."""
    storage = Storage(str(tmp_path))
    take_lock(storage, LAYOUT, NO_BEATS).release()
    holder = []

    def meanwhile() -> None:
        take_lock(storage, LAYOUT, NO_BEATS).release()
        holder.append(take_lock(storage, LAYOUT, NO_BEATS))
        holder[0].forget_earlier()

    files = Interrupted(storage.files, lambda name, _: name == "create", meanwhile)
    with pytest.raises(LockedError, match="LAKE-060"):
        take_lock(Storage(str(tmp_path), files=files), LAYOUT, NO_BEATS)
    assert generations(storage) == [3]
    holder[0].ensure_held()
    holder[0].release()


def test_forced_takeover_fences_live_holder(storage: Storage) -> None:
    """The fenced holder leaves no lock entry behind."""
    living = take_lock(storage, LAYOUT, NO_BEATS)
    living.ensure_held()
    forced = take_lock(storage, LAYOUT, NO_BEATS, force=True)
    with pytest.raises(LockedError, match="LAKE-061"):
        living.ensure_held()
    forced.forget_earlier()
    living.release()
    assert generations(storage) == [forced.entry.generation]
    forced.ensure_held()
    forced.release()


def test_run_ids_grow_despite_clock_set_back() -> None:
    now = datetime(2026, 11, 21, 4, 15, 0, 123456, tzinfo=UTC)
    first = next_run_id(now, None)
    assert first.startswith("20261121T041500123456Z-")
    second = next_run_id(now - timedelta(days=400), first)
    assert second.startswith("20261121T041500123457Z-")


@given(st.lists(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)), min_size=2))
def test_run_ids_sort_in_run_order(clock: list[datetime]) -> None:
    ids: list[str] = []
    for moment in clock:
        ids.append(next_run_id(moment.replace(tzinfo=UTC), ids[-1] if ids else None))
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_lock_entry_is_read_back_unchanged(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    lock = take_lock(storage, LAYOUT, NO_BEATS)
    assert newest_entry(storage, LAYOUT) == lock.entry
    lock.release()


def test_damaged_lock_is_named(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.replace(f"{LAYOUT.locks}/000000000001.json", b'{"format_version": 1}')
    with pytest.raises(StorageError, match=r"RUN-040 .*000000000001\.json"):
        take_lock(storage, LAYOUT, NO_BEATS)


def test_reused_process_id_is_not_lock_holder() -> None:
    this = Process.this()
    assert not this.is_dead()
    assert replace(this, started="1").is_dead()
    assert not replace(this, started="1", machine="another machine").is_dead()


def test_case_folded_pipeline_names_do_not_collide(tmp_path: Path) -> None:
    """Links simulate a disk that folds case."""
    storage = Storage(str(tmp_path))
    take_lock(storage, LAYOUT, NO_BEATS).release()
    for kind in ("locks", "runs"):
        folder = tmp_path / ".dataspoc" / kind
        folder.mkdir(exist_ok=True)
        (folder / "P").symlink_to("p")
    with pytest.raises(ConfigurationError, match=r"LAKE-053 .*p"):
        take_lock(storage, Layout("P"), NO_BEATS)
    take_lock(storage, LAYOUT, NO_BEATS).release()
