"""A process as another one sees it: alive, dead, or unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from faults.small_lake import dead_process
from singer_spark.core import identity
from singer_spark.core.identity import Process
from target_spark_lake.commit.lock import LockEntry

RUN_ID = "20260101T000000000000Z-00000000"
TTL_SECONDS = 60


def entry(holder: Process, silent: timedelta) -> LockEntry:
    beat = datetime.now(UTC) - silent
    return LockEntry(1, RUN_ID, holder, beat, beat, TTL_SECONDS, "p")


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Process:
    """Another user's process where /proc is mounted with hidepid: there is one with this id, and
    nothing else is known.
    """

    def kill(*_: object) -> None:
        raise PermissionError

    this = Process.this()
    monkeypatch.setattr(identity.os, "kill", kill)
    monkeypatch.setattr(identity, "_status", lambda _: ("", ""))
    return this


def test_process_is_alive_until_dead() -> None:
    assert (Process.this().is_alive(), Process.this().is_dead()) == (True, False)
    gone = dead_process()
    assert (gone.is_alive(), gone.is_dead()) == (False, True)
    elsewhere = replace(gone, machine="another machine")
    assert (elsewhere.is_alive(), elsewhere.is_dead()) == (False, False)


def test_live_process_of_another_user_is_not_dead(
    hidden: Process,
) -> None:
    """Another user's live process is not dead where its start time can't be seen."""
    assert not hidden.is_dead()
    assert entry(hidden, timedelta(seconds=1)).is_held()


def test_ambiguous_process_id_holds_while_active(
    hidden: Process,
) -> None:
    """A process id that may have been reused holds the lock only while it shows life."""
    assert not entry(hidden, timedelta(days=30)).is_held()


def test_process_id_without_start_time_expires() -> None:
    """Without /proc there is no start time, and another process may have the id by now."""
    unknown = replace(Process.this(), started="")
    assert entry(unknown, timedelta(seconds=1)).is_held()
    assert not entry(unknown, timedelta(seconds=TTL_SECONDS + 1)).is_held()
    assert replace(dead_process(), started="").is_dead()


def test_dead_holder_with_a_fast_clock_expires() -> None:
    """A dead holder whose clock was ahead does not hold the lock until that time."""
    gone = Process("far-away", "another machine", 4711, "")
    assert not entry(gone, -timedelta(days=365)).is_held()
    assert entry(gone, -timedelta(seconds=TTL_SECONDS / 2)).is_held()


def test_process_is_recognized_by_its_mark() -> None:
    this = Process.this()
    assert Process.of_mark(this.mark()) == replace(this, host="")
    assert Process.of_mark(replace(this, started="").mark()) == replace(this, host="", started="")
    assert [Process.of_mark(text) for text in ("", "5b0f", "a,b,c")] == [None, None, None]
