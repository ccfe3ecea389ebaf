"""What must be on the disk before the next step, told by the order of fsync, unlink and rename."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from faults.small_lake import LAYOUT, SmallLake


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Each call from now on, with its path."""
    events: list[tuple[str, str]] = []
    fsync, unlink, replace = os.fsync, os.unlink, os.replace

    def record_fsync(descriptor: int) -> None:
        events.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def record_unlink(path: Any, *args: Any, **options: Any) -> None:
        events.append(("unlink", str(path)))
        unlink(path, *args, **options)

    def record_replace(source: Any, target: Any) -> None:
        events.append(("replace", str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "unlink", record_unlink)
    monkeypatch.setattr(os, "replace", record_replace)
    return events


def test_retired_files_are_gone_for_good_before_the_run_is_marked_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    events = recorded(monkeypatch)
    lake.sync()
    table, runs = str(tmp_path / LAYOUT.table("whole")), str(tmp_path / LAYOUT.runs)
    gone = max(at for at, (call, path) in enumerate(events) if call == "unlink" and path.startswith(table))
    marked = max(at for at, (call, path) in enumerate(events) if call == "replace" and path.startswith(runs))
    assert ("fsync", table) in events[gone:marked]
