"""The storage operations on a local (or mounted) disk."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from singer_spark.core.identity import Process
from singer_spark.store.bucket import ExplainedError, FileInfo

# How often a folder is walked at most while files in it vanish.
LISTINGS = 10
SCRATCH_TRIES = 100
SCRATCH_KEPT_SECONDS = 24 * 60 * 60
LONGEST_WAIT_SECONDS = 20
# Only the account and its group may read these: they hold records, bookmarks and bounds of columns.
# The umask decides about the files of tables, staged ones too, and about the state, which a tap
# under another account may read.
PRIVATE_FOLDERS = tuple(
    f".dataspoc/{name}/" for name in ("rejected", "runs", "indexes", "staging/runs")
)
PRIVATE_MODE, USUAL_MODE = 0o660, 0o666


class LocalFiles:
    """Files below a folder.

    Content appears atomically, by a hard link or a rename out of a scratch folder.

    Failures are OSErrors, and FileNotFoundError for a missing file. `ObjectFiles` offers the same
    operations; tests inject faults here.
    """

    def __init__(self, root: Path, scratch: str) -> None:
        self.root = root
        self.scratch = root / scratch

    def read(self, path: str) -> bytes:
        """The content; FileNotFoundError if there is none."""
        return (self.root / path).read_bytes()

    def open(self, path: str) -> IO[bytes]:
        """The file, opened for reading."""
        return (self.root / path).open("rb")

    def open_writer(self, path: str) -> IO[bytes]:
        """A file at a path that nothing else writes to, opened for writing.

        It exists from the start.
        """
        _make_folder((self.root / path).parent)
        return (self.root / path).open("wb")

    def create(self, path: str, data: bytes) -> None:
        """Create a file; FileExistsError if there is one."""
        self._land(path, lambda scratch: _write(scratch, data, _mode_of(path)), _link)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing any existing one."""
        self._land(path, lambda scratch: _write(scratch, data, _mode_of(path)), os.replace)

    def exchange(self, path: str, seen: bytes | None, data: bytes) -> None:
        """Replace exactly the content `seen`; FileExistsError if there is another."""
        folder = (self.root / path).parent
        _make_folder(folder)
        with _sole_writer(folder):
            try:
                present: bytes | None = self.read(path)
            except FileNotFoundError:
                present = None
            if present != seen:
                raise FileExistsError(path)
            self.replace(path, data)

    def ignored_conditions(self, path: str, other: bytes) -> tuple[str, ...]:
        """None: a hard link never replaces an existing file."""
        return ()

    def upload(self, source: Path, path: str) -> None:
        """Copy a file of this machine in, completely or not at all."""
        self._land(path, lambda scratch: _copy(source, scratch, _mode_of(path)), os.replace)

    def extend(self, source: str, tail: bytes, target: str) -> None:
        """Copy a file with bytes appended, completely or not at all."""
        self._land(
            target,
            lambda scratch: _copy(self.root / source, scratch, _mode_of(target), tail),
            os.replace,
        )

    def _land(
        self, path: str, write: Callable[[Path], None], land: Callable[[Path, Path], None]
    ) -> None:
        """Write a scratch file and move it to its path atomically.

        Written again if it was swept away meanwhile.
        """
        target = self.root / path
        for attempt in range(SCRATCH_TRIES):
            scratch = self.scratch / f"{Process.this().mark()}.{uuid.uuid4().hex}"
            try:
                _make_folder(scratch.parent)
                write(scratch)
                _make_folder(target.parent)
                land(scratch, target)
                _flush_folder(target.parent)
                return
            except FileNotFoundError:
                if attempt == SCRATCH_TRIES - 1:
                    raise
            finally:
                scratch.unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        """Rename a file; FileNotFoundError if it is missing."""
        here, there = self.root / source, self.root / target
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            here.rename(there)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _move_to_another_disk(here, there)

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        (self.root / path).unlink(missing_ok=True)

    def delete_all(self, prefix: str) -> None:
        """Remove a folder with everything below it; a missing one is fine."""
        _remove_tree(self.root / prefix)

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Remove those of the folders that contain nothing but others of them."""
        for folder in sorted(folders, reverse=True):  # what is inside comes first
            try:
                (self.root / folder).rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise

    def list(self, prefix: str) -> list[FileInfo]:
        """All files below a folder; an unreadable folder is an error, not an empty one."""
        for _ in range(LISTINGS):
            found, is_whole = _walked(self.root, prefix)
            # Otherwise again: the file that replaced a vanished one may have appeared where we had
            # already looked.
            if is_whole:
                break
        return found

    def size(self, path: str) -> int:
        """Size in bytes; FileNotFoundError if it is missing."""
        return (self.root / path).stat().st_size

    def flush(self, paths: Iterable[str]) -> None:
        """Sync files, and the folders between them and the root."""
        folders: set[Path] = set()
        for path in paths:
            _flush(self.root / path)
            folders.update(Path(path).parents)
        for folder in folders:
            _flush_folder(self.root / folder)

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Sync the folders of removed files."""
        for folder in {(self.root / path).parent for path in paths}:
            with suppress(FileNotFoundError):  # removed as well
                _flush_folder(folder)

    def sweep(self) -> None:
        """Remove the scratch files that dead writers left; the folder stays for living ones."""
        for file in self.list(self.scratch.relative_to(self.root).as_posix()):
            if _is_abandoned(file):
                self.delete(file.path)


def _is_abandoned(scratch: FileInfo) -> bool:
    """Whether its writer is dead or, if that can't be determined here, the file a day old."""
    writer = Process.of_mark(Path(scratch.path).stem)
    if writer is None or not (writer.is_alive() or writer.is_dead()):
        return time.time() - (scratch.modified or 0) > SCRATCH_KEPT_SECONDS
    return writer.is_dead()


def _walked(root: Path, prefix: str) -> tuple[list[FileInfo], bool]:
    """The files, and whether none vanished meanwhile."""
    found, is_whole = [], True
    for folder, _, names in os.walk(root / prefix, onerror=_unless_missing):
        for name in names:
            file = Path(folder, name)
            try:
                facts = file.stat()
            except FileNotFoundError:
                is_whole = is_whole and file.is_symlink()  # a dead link stays
                continue
            found.append(FileInfo(file.relative_to(root).as_posix(), facts.st_size, facts.st_mtime))
    return found, is_whole


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _link(scratch: Path, target: Path) -> None:
    try:
        os.link(scratch, target)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            without = (
                "the disk does not support hard links (FAT, SMB and some FUSE mounts do not); "
                "keep the lake on another disk"
            )
            raise OSError(errno.ENOTSUP, without) from error
        raise


def _move_to_another_disk(source: Path, target: Path) -> None:
    """Copy to a hidden name beside the target first, so that it appears atomically.

    The kernel does the copying.
    """
    location = target.with_name(f".{target.name}.moving")
    location.mkdir(exist_ok=True)
    try:
        scratch = location / uuid.uuid4().hex
        shutil.copyfile(source, scratch)
        _flush(scratch)
        scratch.replace(target)
        _flush_folder(target.parent)
        source.unlink(missing_ok=True)
    finally:
        # Also the copies of others: of a dead process, and of a suspended one, which then can't
        # bring the file back.
        _remove_tree(location)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, and sync them against a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):  # made meanwhile; if it is a file, the next step fails
        folder.mkdir()
    _flush_folder(folder.parent)


def _mode_of(path: str) -> int:
    """The permissions of a new file at a path; the umask may remove some of them."""
    is_private = path.startswith(PRIVATE_FOLDERS) and not path.endswith(".parquet")
    return PRIVATE_MODE if is_private else USUAL_MODE


def private_file(path: Path) -> None:
    """Create an empty file that others can't read, unless there is one."""
    with suppress(FileExistsError), _new(path, PRIVATE_MODE):
        pass


def _new(path: Path, mode: int) -> IO[bytes]:
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def _copy(source: Path, file: Path, mode: int, tail: bytes = b"") -> None:
    if not source.exists():  # so that it is not mistaken for a scratch file that was swept away
        raise OSError(errno.EINVAL, f"{source} does not exist")
    _new(file, mode).close()
    shutil.copyfile(source, file)
    with file.open("ab") as stream:
        stream.write(tail)
    _flush(file)


def _write(file: Path, data: bytes, mode: int) -> None:
    with _new(file, mode) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def _sole_writer(folder: Path) -> Iterator[None]:
    """Keep other processes out by the kernel's lock on the folder, which ends with its owner."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                way_out = "wait until that process has ended, or end it,"
                raise ExplainedError(f"another process keeps {folder} locked", way_out)
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network disks have no such locks: there, only the run lock protects.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.EINVAL):
            raise
    return True


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    try:
        _flush(folder)
    except PermissionError:
        pass  # a folder above the bucket, in which we may make folders but not look
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks have no such call
            raise


def _remove_tree(folder: Path) -> None:
    """Remove a tree; files may vanish or appear meanwhile, but one that can't be removed is an
    error.
    """

    def unless_in_use(
        _function: object, _path: str, error: tuple[type, BaseException, object]
    ) -> None:
        # An orphaned process may still write there; the next start removes its files.
        if getattr(error[1], "errno", None) not in (errno.ENOENT, errno.ENOTEMPTY):
            raise error[1]

    shutil.rmtree(folder, onerror=unless_in_use)
