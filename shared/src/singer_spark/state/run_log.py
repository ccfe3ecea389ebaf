"""The journal objects of a pipeline's runs, as both programs read them.

A run's object is created only if it is absent, and only once: as a commit, as a failure, or as
another run's verdict that it is dead. Its creation decides the run. A commit has two phases:
`committed`, and `published` once readers see all of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from singer_spark.core.exact_json import state_from_json, to_json
from singer_spark.core.messages import timestamp_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError, StorageError

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage

JSON = dict[str, Any]
LAKE_FOLDER = ".dataspoc"
# Where a tap writes its batch files in the lake's bucket, unless it is given another place.
BATCHES = f"{LAKE_FOLDER}/staging/batches"
FORMAT_VERSION = 1
COMMITTED, PUBLISHED, ABORTED = "committed", "published", "aborted"
_RUN_ID_TIME = "%Y%m%dT%H%M%S%fZ"


def new_run_id(moment: datetime) -> str:
    """A new, unique run id for this moment (UTC)."""
    return f"{moment.strftime(_RUN_ID_TIME)}-{secrets.token_hex(4)}"


def time_of(run_id: str) -> datetime:
    """The moment in a run id."""
    return datetime.strptime(run_id.partition("-")[0], _RUN_ID_TIME).replace(tzinfo=UTC)


def moment_of(run_id: str) -> datetime:
    """The moment in a run id; 1970 if the id was made up by hand."""
    try:
        return time_of(run_id)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def folder_name(name: str) -> str:
    """A name as a path segment: percent-encoded except letters, digits and `-_.`.

    A leading `.` or `_` is encoded.
    """
    encoded = quote(name, safe="").replace("~", "%7E")
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded


def runs_folder(pipeline: str) -> str:
    """Folder of a pipeline's journals."""
    return f"{LAKE_FOLDER}/runs/{folder_name(pipeline)}"


@dataclass(frozen=True)
class RunEntry:
    """A decided run, read back from its journal object.

    Attributes:
        run_id: Sortable by time, even across machines with differing clocks, as the lock passes on
            the last one.
        phase: `committed`, `published` or `aborted`.
        last_committed: The newest committed run before this one, if any.
        state: The state that it saved; None if it saved none.
        body: The whole object.
    """

    run_id: str
    phase: str
    last_committed: str | None
    state: dict[str, Any] | None
    body: dict[str, Any]


def encode(body: dict[str, Any]) -> bytes:
    """Serialise an object of the lake's own folder: JSON with its format version first."""
    return to_json({"format_version": FORMAT_VERSION, **body}, 1, ascii_only=True).encode()


def decode(data: bytes, path: str) -> dict[str, Any]:
    """Parse the result of `encode`.

    Raises:
        DamagedError: it is not as it was written.
        StorageError: a newer version of the programs wrote it.
    """
    try:
        body = state_from_json(data)
        version = body["format_version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedError(
            RunCode.LAKE_FILE_DAMAGED,
            f"{path} is damaged ({error}); restore it from a backup, or remove it",
        ) from error
    if version != FORMAT_VERSION:
        raise StorageError(
            RunCode.NEWER_FORMAT,
            f"{path} has format version {version}, this program knows {FORMAT_VERSION}: upgrade "
            "this program",
        )
    return dict(body)


def run_ids(storage: Storage, runs: str) -> list[str]:
    """Ids of all decided runs, newest first."""
    names = (file.path[len(runs) + 1 :] for file in storage.list(runs))
    return sorted(
        (name[:-5] for name in names if name.endswith(".json") and "/" not in name), reverse=True
    )


def read_entry(storage: Storage, runs: str, run_id: str) -> RunEntry | None:
    """The entry of a run; None while it is undecided."""
    path = f"{runs}/{run_id}.json"
    data = storage.read(path)
    if data is None:
        return None
    body = decode(data, path)
    try:
        phase, last, state = (body[name] for name in ("phase", "last_committed", "state"))
    except KeyError as error:
        raise DamagedError(
            RunCode.LAKE_FILE_DAMAGED,
            f"{path} lacks {error}; restore it from a backup, or remove it",
        ) from error
    _complete(run_id, phase, body)
    return RunEntry(run_id, phase, last, state, body)


def _complete(run_id: str, phase: str, body: dict[str, Any]) -> None:
    """Add missing members to a journal that was edited by hand."""
    moment = timestamp_text(moment_of(run_id))
    usual: JSON = {"started_at": moment, "finished_at": None, "streams": {}, "error": None}
    if phase == ABORTED:
        # A failure or a dead run; assume the outcome that is never pruned.
        usual["outcome"] = "rolled_back"
    else:
        usual |= {"outcome": "succeeded", "committed_at": moment}
    for name, value in usual.items():
        body.setdefault(name, value)


def last_committed(
    storage: Storage, runs: str, decided: Sequence[str] | None = None
) -> RunEntry | None:
    """The newest committed run; two reads at most after any number of failed runs.

    `decided` are the runs' ids, newest first, if known already.
    """
    for run_id in run_ids(storage, runs) if decided is None else decided:
        entry = read_entry(storage, runs, run_id)
        if entry is None:  # pruned while we looked
            continue
        if entry.phase != ABORTED:
            return entry
        return read_entry(storage, runs, entry.last_committed) if entry.last_committed else None
    return None
