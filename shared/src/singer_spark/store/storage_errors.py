"""Storage failures as one line: what could not be done, where, why, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from singer_spark.error_codes import RunCode
from singer_spark.errors import SingerSparkError, StorageError

CONDITIONAL_WAY_OUT = (
    "take a store with conditional puts, or take the risk by the target's "
    "setting accept_unconditional_storage"
)


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
    """A failure whose text says why.

    Attributes:
        way_out: What the user can do.
    """

    def __init__(self, text: str, way_out: str) -> None:
        super().__init__(text)
        self.way_out = way_out


class MissingError(StoreFailure, FileNotFoundError):
    """The object, or the bucket, does not exist."""


class RefusedError(StoreFailure, PermissionError):
    """The store denies this account the operation."""


@contextmanager
def storage_errors(verb: str, location: str) -> Iterator[None]:
    """Turn any failure inside into one StorageError that names the location."""
    try:
        yield
    except SingerSparkError:
        raise
    except Exception as error:
        raise StorageError(
            RunCode.STORAGE_FAILED, f"can't {verb} {location}: {_reason(error)}; {_way_out(error)}"
        ) from error


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
