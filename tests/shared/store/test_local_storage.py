"""What only a local or mounted disk does: folders that can't be read, other disks, disks that lack
something.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faults.small_lake import dead_process
from singer_spark.core.identity import Process
from singer_spark.errors import StorageError
from singer_spark.store import local_files
from singer_spark.store.local_files import LocalFiles
from singer_spark.store.storage import SCRATCH, Storage

DAY = 24 * 60 * 60
START = "import sys; from singer_spark.store.storage import Storage; Storage(sys.argv[1]).sweep()"


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than `tmp_path`."""
    here = tmp_path.stat().st_dev
    disks = [Path(each) for each in ("/dev/shm", tempfile.gettempdir(), Path.home())]
    others = [disk for disk in disks if os.access(disk, os.W_OK) and disk.stat().st_dev != here]
    if not others:
        pytest.skip("there is no other disk")
    with tempfile.TemporaryDirectory(dir=others[0]) as folder:
        yield Path(folder)


def test_unlistable_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that can't be listed is an error, not an empty folder."""
    storage = Storage(str(tmp_path))
    storage.replace("t/day=1/a", b"1")
    real = os.scandir

    def scandir(path: str | Path = ".") -> object:
        if str(path).endswith("day=1"):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError, match="RUN-052"):
        storage.list("t")
    assert storage.list("nothing-here") == []


def test_listing_has_file_or_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").touch()
    (tmp_path / "dead link").symlink_to(tmp_path / "nowhere")
    look = Path.stat

    def late(path: Path, **options: bool) -> os.stat_result:
        if path.name == "old":
            (tmp_path / "new").touch()
            path.unlink(missing_ok=True)
        return look(path, **options)

    monkeypatch.setattr(Path, "stat", late)
    assert [file.path for file in Storage(str(tmp_path)).list("")] == ["new"]


def test_file_moves_whole_to_another_disk(tmp_path: Path, other_disk: Path) -> None:
    """A file moves whole to another disk, and the move can be repeated."""
    (tmp_path / "raw").symlink_to(other_disk)
    storage = Storage(str(tmp_path))
    storage.replace("staging/part", b"rows")
    for _ in range(2):
        storage.move("staging/part", "raw/t/final")
    assert storage.read("raw/t/final") == b"rows"
    assert storage.size("staging/part") is None
    assert [path.name for path in (other_disk / "t").iterdir()] == ["final"]


@pytest.mark.parametrize("asleep_in", ["copyfile", "_flush"])
def test_stale_mover_does_not_restore_a_retired_file(
    tmp_path: Path, other_disk: Path, monkeypatch: pytest.MonkeyPatch, asleep_in: str
) -> None:
    """Meanwhile its rival moved the very file, and a later run retired it."""
    (tmp_path / "raw").symlink_to(other_disk)
    storage = Storage(str(tmp_path))
    storage.replace("staging/part", b"rows")
    module = shutil if asleep_in == "copyfile" else local_files
    real = getattr(module, asleep_in)

    def sleep(*args: object) -> object:
        monkeypatch.setattr(module, asleep_in, real)
        storage.move("staging/part", "raw/t/final")
        storage.delete("raw/t/final")
        return real(*args)

    monkeypatch.setattr(module, asleep_in, sleep)
    with pytest.raises(StorageError, match="RUN-052"):
        storage.move("staging/part", "raw/t/final")
    assert list((other_disk / "t").iterdir()) == []


def test_leftovers_of_a_dead_mover_are_removed(tmp_path: Path, other_disk: Path) -> None:
    """What a mover left that died between two disks is removed by the next one."""
    (tmp_path / "raw").symlink_to(other_disk)
    storage = Storage(str(tmp_path))
    storage.replace("staging/part", b"rows")
    left = other_disk / "t/.final.moving/half"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"ro")
    storage.move("staging/part", "raw/t/final")
    assert [path.name for path in (other_disk / "t").iterdir()] == ["final"]


def test_object_survives_a_power_cut_with_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object survives a power cut with all folders that lead to it."""
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    Storage(f"{tmp_path}/lake").create("a/b/c", b"1")
    assert {str(tmp_path / folder) for folder in (".", "lake", "lake/a", "lake/a/b")} <= set(synced)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_disk_without_hard_links_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(*_: object) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError, match="RUN-052"):
        Storage(str(tmp_path)).create("a", b"1")


def test_disk_without_folder_sync_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that can't sync folders causes no failure once the object is there."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    storage = Storage(str(tmp_path))
    assert storage.create("a/b", b"1")
    storage.flush(["a/b"])
    storage.flush_folders(["a/b", "gone/c"])


def test_folder_sync_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(str(tmp_path))
    storage.replace("a/b", b"1")

    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match=r"RUN-052 .*Input/output"):
        storage.flush_folders(["a/b"])


def test_write_is_retried_if_its_scratch_file_is_gone(tmp_path: Path) -> None:
    """An older version or a user may delete scratch files."""
    files = LocalFiles(tmp_path, SCRATCH)
    swept: list[Path] = []

    def land(scratch: Path, target: Path) -> None:
        if not swept:
            swept.append(scratch)
            scratch.unlink()
        os.link(scratch, target)

    files._land("a", lambda scratch: scratch.write_bytes(b"whole") and None, land)
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert list((tmp_path / SCRATCH).iterdir()) == []


def test_concurrent_start_keeps_scratch_file_of_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline starts during every copy, and no copy is made twice."""
    source, lake = tmp_path / "source", tmp_path / "lake"
    source.write_bytes(b"rows")
    copies: list[Path] = []
    real = shutil.copyfile

    def copy(here: Path, there: Path) -> object:
        copies.append(there)
        real(here, there)
        subprocess.run([sys.executable, "-c", START, str(lake)], check=True)
        return there

    monkeypatch.setattr(shutil, "copyfile", copy)
    storage = Storage(str(lake))
    storage.upload(source, "raw/a")
    storage.extend("raw/a", b" and more", "raw/b")
    assert len(copies) == 2
    assert storage.read("raw/b") == b"rows and more"
    assert list((lake / SCRATCH).iterdir()) == []


def scratch_of(folder: Path, mark: str, age_seconds: float = 0) -> Path:
    """A scratch file of the writer of this mark."""
    scratch = folder / SCRATCH / f"{mark}.0123"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_bytes(b"half")
    then = time.time() - age_seconds
    os.utime(scratch, (then, then))
    return scratch


def test_sweep_removes_only_files_of_dead_writers(tmp_path: Path) -> None:
    living, init = Process.this(), Process.of(1)
    left = scratch_of(tmp_path, dead_process().mark())
    reused = scratch_of(tmp_path, replace(living, started="1").mark())
    own = scratch_of(tmp_path, living.mark(), 10 * DAY)
    another_users = scratch_of(tmp_path, init.mark(), 10 * DAY)
    elsewhere = replace(dead_process(), machine="far,away.net/pid")
    far = scratch_of(tmp_path, elsewhere.mark(), DAY - 600)
    far_and_old = scratch_of(tmp_path, replace(elsewhere, pid=4711).mark(), DAY + 600)
    unnamed = scratch_of(tmp_path, "5b0f", DAY - 600)  # an older version's
    unnamed_and_old = scratch_of(tmp_path, "5b10", DAY + 600)
    Storage(str(tmp_path)).sweep()
    assert set((tmp_path / SCRATCH).iterdir()) == {own, another_users, far, unnamed}
    assert not any(file.exists() for file in (left, reused, far_and_old, unnamed_and_old))
