"""The requests that `ObjectFiles` makes of any store, a storage's metadata of a file, and its
failures as one line: what could not be done, where, why, and what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError, foreign_errors

CONDITIONAL_WAY_OUT = (
    "use a store with conditional puts, or accept the risk by the target's setting "
    "accept_unconditional_storage"
)
# The version of an object that must not exist yet.
ABSENT = ""
# The size of an upload's pieces, and how many are sent at once: together they limit its memory.
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
MOST_PIECES = 10_000


class UnconditionalStoreError(OSError):
    """This kind of store has no known way to let exactly one of two writers win."""


class StoreFailure(OSError):
    """A store's refusal or failure, with its own message.

    Attributes:
        code: The store's error code, or the HTTP status, or empty.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ExplainedError(OSError):
    """A failure whose text says why, and whose `way_out` what the user can do."""

    def __init__(self, text: str, way_out: str) -> None:
        super().__init__(text)
        self.way_out = way_out


class MissingError(StoreFailure, FileNotFoundError):
    """The object, or the bucket, does not exist."""


class RefusedError(StoreFailure, PermissionError):
    """The store denies this account the operation."""


def storage_errors(verb: str, location: str) -> AbstractContextManager[None]:
    """Turn any failure inside into one StorageError that names the location."""
    return foreign_errors(
        lambda error: StorageError(
            RunCode.STORAGE_FAILED, f"can't {verb} {location}: {_reason(error)}; {_way_out(error)}"
        )
    )


@contextmanager
def missing_is_fine() -> Iterator[None]:
    """Ignore a missing file; a missing bucket is still an error."""
    try:
        yield
    except FileNotFoundError as error:
        if error_code(error) == "NoSuchBucket":
            raise


def error_code(error: BaseException | None) -> str:
    """The store's own code for a failure (`NoSuchBucket`), or empty."""
    while error is not None:
        if isinstance(error, StoreFailure):
            return error.code
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""


def _reason(error: Exception) -> str:
    """The cause in the words of the system, or the store."""
    if isinstance(error, ExplainedError):
        return str(error)
    if isinstance(error, OSError) and error.strerror and not error_code(error):
        return error.strerror
    return f"{type(error).__name__}: {error}"


def _way_out(error: Exception) -> str:
    if isinstance(error, ExplainedError):
        return f"{error.way_out} and run again"
    if error_code(error) in ("RequestTimeTooSkewed", "RequestExpired"):
        return "set this machine's clock: the store refuses requests whose time is off by minutes"
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run again"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "let this user read and write there, or name another folder"
    if isinstance(error, PermissionError):
        return "check that storage_options' key may read and write there"
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return "give key and secret in storage_options or in the environment"
    if error_code(error) == "NoSuchBucket":
        return "make the bucket first, or correct its name"
    if error_code(error) in ("NotImplemented", "501") or isinstance(error, UnconditionalStoreError):
        return CONDITIONAL_WAY_OUT
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        return "there is a file where a folder should be, or the reverse: correct the path"
    if number is not None:
        return "check the folder, and that this machine can write there, and run again"
    return "check the bucket's URL and storage_options and run again"


@dataclass(frozen=True)
class FileInfo:
    """A file or object.

    Attributes:
        path: Relative to the storage's root.
        size: In bytes.
        modified: When it was written, by the storage's clock, in seconds since the epoch; None if
            unknown.
    """

    path: str
    size: int
    modified: float | None = field(default=None, compare=False)


class UndecidedError(OSError):
    """Another conditional write of that object is under way: no writer has won yet."""


class LostAnswerError(OSError):
    """The request may or may not have been carried out: its answer was lost."""


class UnreachableError(ExplainedError, LostAnswerError):
    """There was no connection to the store, or no answer from it."""


class NoLoginError(ExplainedError):
    """There are no keys for the store."""

    def __init__(self) -> None:
        super().__init__(
            "there is no login for the store: no keys in storage_options or the environment, and "
            "this machine has no role",
            "give key and secret in storage_options, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE,",
        )


@dataclass(frozen=True)
class Entry:
    """An object in a listing.

    Attributes:
        key: Its name in the bucket; with a slash at the end it is an empty marker of a folder.
        size: In bytes.
        modified: When it was written, in seconds since the epoch; None if unknown.
        maybe_folder: The listing does not show whether the key ends with a slash.
    """

    key: str
    size: int
    modified: float | None
    maybe_folder: bool = False


class Bucket(Protocol):
    """One bucket. Failures are OSErrors; a FileNotFoundError for a missing object."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The store's names for its conditions of creation and exchange; empty if it has none."""

    @property
    def folders_are_listed(self) -> bool:
        """Whether a folder's marker is listed among the objects below the folder."""

    def read(self, key: str) -> tuple[bytes, str]:
        """The content, and the version of the object."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object, from a start within it."""

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """The last bytes of an object, and its size."""

    def size(self, key: str) -> int:
        """The size of an object."""

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        """Write an object in one request, or only over one version, `ABSENT` for none.

        Raises:
            FileExistsError: there is another version.
            UndecidedError: no writer has won yet.
            LostAnswerError: the outcome is unknown.
        """

    def upload(self, source: Path, key: str) -> None:
        """Copy a file of this machine, in pieces that become an object atomically."""

    def open_writer(self, key: str) -> IO[bytes]:
        """A stream whose bytes become an object when it is closed."""

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store; the copy is complete when this returns."""

    def is_folder(self, key: str) -> bool:
        """Whether an empty object with `maybe_folder` in a listing marks a folder."""

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        """Copy with bytes appended, inside the store; False if it can't."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are fine."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All objects whose keys begin with `prefix`, which ends with a slash."""
