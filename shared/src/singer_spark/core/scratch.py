"""Local files: a scratch folder of this process, and the atomic replacement of a file.

The scratch folder is removed at the process's end, or after a `kill -9` by the next start. It is in
the folder for temporary files (`TMPDIR`). The kernel's lock on a file inside shows whether its
owner lives.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

PREFIX = "singer-spark-scratch-"
LOCK = "owner.lock"


@cache
def scratch_folder() -> Path:
    """The folder, created on first use, after removing those of killed processes.

    Raises:
        ConfigurationError: no folder can be created among the temporary files.
    """
    try:
        location = Path(tempfile.gettempdir())
        _remove_abandoned(location)
        folder = _make(location)
    except OSError as error:
        raise ConfigurationError(
            RunCode.DISK_FULL,
            f"no folder for temporary files can be made: {error}; free some space, or set TMPDIR "
            "to another place",
        ) from error
    atexit.register(_remove, folder)
    return folder


def remove_scratch() -> None:
    """Remove the folder now, for a process that exits without its usual clean-up."""
    if scratch_folder.cache_info().currsize:
        _remove(scratch_folder())


def _make(location: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=location))
        (folder / LOCK).touch()
        locked = _lock(folder) is not None
        # Another start may have taken it for abandoned right after it was created.
        if locked and (folder / LOCK).exists():
            return folder


def _remove_abandoned(location: Path) -> None:
    for lock in location.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # another user's, or gone meanwhile
            descriptor = _lock(lock.parent) if lock.parent.lstat().st_uid == os.getuid() else None
            if descriptor is not None:
                _remove(lock.parent)
                os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock while open; None if another process holds it."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(folder: Path) -> None:
    """Remove everything, the lock last: the next start then finds what can't be removed now."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != LOCK:
                path.unlink(missing_ok=True)
        if [path.name for path in folder.iterdir()] == [LOCK]:
            shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file: others read the old one or the new one, never a part.

    Raises:
        OSError: it can't be written; the old one stays.
    """
    # With the mode of any new file of the user, and not private as temporary files are.
    mask = os.umask(0)
    os.umask(mask)
    with tempfile.NamedTemporaryFile(
        "wb", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).chmod(0o666 & ~mask)
            Path(file.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise
