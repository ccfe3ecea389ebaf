"""A disk that fails to list a folder: what lies there must not be taken for nothing."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, Died, Faulty
from faults.small_lake import LAYOUT, SmallLake, dead_process
from singer_spark.errors import StorageError

MOVES = frozenset({"move"})


def fail_one_listing(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    real, left = os.scandir, [1]

    def scandir(path: str | Path = ".") -> object:
        if str(path).endswith(folder) and left:
            left.clear()
            raise OSError(errno.EIO, "Input/output error")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_failed_journal_listing_forgets_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it counted as no journal, the files that the dead run had already published would be there
    beside the same rows.
    """
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    with suppress(Died):
        lake.sync(
            lake.faulty_files(partial(Faulty, nth=1, fault=DIE_AFTER, only=MOVES)), dead_process()
        )
    with monkeypatch.context() as failing:
        fail_one_listing(failing, LAYOUT.runs)
        with pytest.raises(StorageError, match=r"RUN-052 .*Input/output"):
            lake.sync()
    lake.check_exact(lake.sync())


def test_failed_table_listing_keeps_no_old_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overwrite keeps no old rows when listing its table fails once."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    with monkeypatch.context() as failing:
        fail_one_listing(failing, LAYOUT.table("whole"))
        with pytest.raises(StorageError, match=r"RUN-052 .*Input/output"):
            lake.sync()
    assert lake.rows("whole") == list(range(lake.published_bound()))
    lake.check_exact(lake.sync())
