"""The way out for a committed run that can't be published: a run of its own takes back what was published of it.

That run's journal is a commit like any other: the files that go, the log entries that undo, the state before. So
whoever comes after a crash finishes it, and the next run starts as if the one that was given up had never been.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from singer_spark.errors import LockedError, StateError
from singer_spark.state.choice import place_of
from singer_spark.state.run_log import LAKE_FOLDER, PUBLISHED, RunEntry, read_entry
from singer_spark.storage.at_once import each
from target_spark_lake.commit import journal
from target_spark_lake.commit.journal import GIVEN_UP_BY, GIVES_UP, Plan, RunFacts
from target_spark_lake.commit.publish import lost_files, publish
from target_spark_lake.config_schema import APPEND_ONLY
from target_spark_lake.delta_log.commit_plan import transaction_number
from target_spark_lake.delta_log.take_back import can_take_back
from target_spark_lake.layout import JOINED, ORDERS, is_order
from target_spark_lake.state.saving import cleared

if TYPE_CHECKING:
    from singer_spark.errors import UnpublishableError
    from singer_spark.state.store import StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.commit.lock import RunLock
    from target_spark_lake.delta_log.log_entry import DeltaCommit
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.changes import PublishedFile
    from target_spark_lake.tables.table_record import TableRecord

JSON = dict[str, Any]
logger = logging.getLogger(__name__)

CONVERT = "convert"
STAGED = f"{LAKE_FOLDER}/staging/runs/"


@dataclass(frozen=True)
class StreamLoss:
    """What giving up means for one stream.

    Attributes:
        lost_files: Files that were gone.
        lost_rows: Rows that they held.
        taken_back_files: Files that were still there, and do not count any more.
        taken_back_rows: Rows in them.
    """

    lost_files: int = 0
    lost_rows: int = 0
    taken_back_files: int = 0
    taken_back_rows: int = 0

    def plus(self, file: PublishedFile, *, lost: bool) -> StreamLoss:
        """With one more file counted in."""
        if lost:
            return replace(self, lost_files=self.lost_files + 1, lost_rows=self.lost_rows + file.rows)
        files, rows = self.taken_back_files + 1, self.taken_back_rows + file.rows
        return replace(self, taken_back_files=files, taken_back_rows=rows)


def check_given_up(storage: Storage, layout: Layout, run_id: str, last: RunEntry | None) -> JSON | None:
    """Refuses to give up a run that is not committed and unpublished.

    Returns:
        Of a run that was given up before, what its journal and its undoer's say; None: it may be tried.

    Raises:
        StateError: there is no such run, or it is no unpublished one.
    """
    if last is not None and last.body.get(GIVES_UP, {}).get("run_id") == run_id:
        return told(last)  # perhaps not all of it is done yet: what follows finishes it
    entry = read_entry(storage, layout.runs, run_id)
    if entry is None:
        raise StateError(f"pipeline {layout.pipeline} has no run {run_id}: `spark-lake runs` shows them")
    if by := entry.body.get(GIVEN_UP_BY):
        return told(read_entry(storage, layout.runs, by))
    if GIVES_UP in entry.body:
        raise StateError(
            f"run {run_id} takes back run {entry.body[GIVES_UP]['run_id']}: `spark-lake recover` finishes it"
        )
    if entry.phase == PUBLISHED:
        raise StateError(
            f"run {run_id} is published, so there is nothing to give up; `spark-lake state restore {run_id} --before` "
            "makes the state before it the current one"
        )
    if last is None or last.run_id != run_id:
        raise StateError(f"run {run_id} was never committed: nothing of it happened, and there is nothing to give up")
    return None


def told(entry: RunEntry | None) -> JSON | None:
    """What a run that took another one back says of it."""
    return None if entry is None else {**entry.body[GIVES_UP], "by": entry.run_id}


def give_up(
    storage: Storage, layout: Layout, store: StateStore, lock: RunLock, entry: RunEntry, reason: UnpublishableError
) -> RunEntry:
    """Takes a committed run back, by a run in whose name the pipeline is held.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        store: Where the published state is.
        lock: The holder's.
        entry: The run, which was just tried to be published.
        reason: Why it could not be.

    Returns:
        The run that took it back, published.

    Raises:
        UnpublishableError: someone else changed a table since; nothing was decided.
        StorageError: the storage failed; the next start goes on, or nothing was decided.
        LockedError: another process took over.
    """
    plan = Plan.of(entry)
    lost = lost_files(storage, plan)
    undoing = _Undoing(storage, lock.entry.run_id, entry, plan, lost).plan()
    state = _state_before(entry, store)
    facts = RunFacts(
        lock.entry.run_id, layout.pipeline, lock.entry.since, entry.last_committed, command=lock.entry.command
    )
    body = journal.committed_body(facts, undoing, {}, state, entry.body.get("previous_state"), place_of(entry))
    streams = {stream: asdict(loss) for stream, loss in _losses(entry, plan, lost).items()}
    body[GIVES_UP] = {
        "run_id": entry.run_id,
        "reason": str(reason).partition("; or give the run up")[0],
        "streams": streams,
    }
    lock.ensure_held()
    if not journal.commit(storage, layout, body):
        raise LockedError(
            f"pipeline {layout.pipeline}: another process took this one for dead, so nothing was given up"
        )
    logger.warning("Run %s is given up: what was published of it is taken back.", entry.run_id)
    made = RunEntry(facts.run_id, body["phase"], body["last_committed"], body["state"], body)
    return publish(storage, layout, store, made, lock.ensure_held)


class _Undoing:
    """Plans what takes a run back, table by table."""

    def __init__(
        self, storage: Storage, run_id: str, entry: RunEntry, plan: Plan, lost: tuple[PublishedFile, ...]
    ) -> None:
        self._lost = frozenset(lost)
        self._storage = storage
        self._run_id = run_id
        self._converts = entry.body.get("command") == CONVERT
        self._plan = plan
        self._records = {_table_of_record(path): (path, record) for path, record in plan.tables.items()}
        self._delta = {commit.table: commit for commit in plan.delta}

    def plan(self) -> Plan:
        """What goes, what stays after all, and which entries undo others."""
        delta = {table: self._entry_against(commit) for table, commit in self._delta.items()}
        made = {table for table, commit in delta.items() if can_take_back(self._storage, commit)}
        # First what a process that sleeps could still move.
        retire = [file.staged for file in self._plan.publish]
        tables: dict[str, TableRecord] = {}
        for table in dict.fromkeys((*(_table_of(file.final) for file in self._plan.publish), *self._records)):
            files = [file for file in self._plan.publish if _table_of(file.final) == table]
            if table in self._delta:
                # A version of the log names its files: they go once nobody can ask for it any more (VACUUM).
                retire += [] if table in made else [file.final for file in files]
                # What the run has made of a new table can only become an empty table of the pipeline.
                stays = table in made and (self._converts or self._delta[table].seen is None)
            else:
                old = [path for path in self._plan.retire if _table_of(path) == table]
                stays = None in each(self._storage, self._storage.size, old)
                retire += [file.final for file in files if not stays or self._comes_again(table, file)]
                # Beside a file that is lost nobody knows which rows these alone still hold.
                retire += old if stays and not set(files) & self._lost else []
            if stays and table in self._records:
                path, record = self._records[table]
                tables[path] = record
        undone = () if self._converts else tuple(delta.values())
        return Plan((), tuple(dict.fromkeys(retire)), tables, undone)

    def _comes_again(self, table: str, file: PublishedFile) -> bool:
        """Whether the next run brings all rows of a file, in a table whose files before are gone already.

        A table that keeps every version would have the run's own rows twice; what was only written anew stays. One that
        holds a row for each key, or is written whole, takes the same rows again.
        """
        record = self._records.get(table)
        method = record[1].load_method if record else None
        is_history = method == APPEND_ONLY or table.endswith("__history")
        _, _, _, *folders = file.staged.removeprefix(STAGED).split("/")
        written_anew = folders[0] == JOINED or "rewritten" in file.staged.removesuffix(".parquet").split("/")[-2:]
        return is_history and not written_anew

    def _entry_against(self, commit: DeltaCommit) -> DeltaCommit:
        return replace(
            commit,
            run_id=self._run_id,
            transaction=transaction_number(self._run_id),
            schema=None,
            features=(),
            add=(),
            remove=(),
            takes_back=commit.transaction,
        )


def _state_before(entry: RunEntry, store: StateStore) -> JSON | None:
    """What the next run starts from; None: what is saved stays, for the run saves none, or nothing was before it."""
    if entry.state is None:
        return None
    before: JSON | None = entry.body.get("previous_state")
    return cleared(entry.state) if before is None and store.content() is not None else before


def _losses(entry: RunEntry, plan: Plan, lost: tuple[PublishedFile, ...]) -> dict[str, StreamLoss]:
    losses = {stream: StreamLoss() for stream in entry.body["streams"]}
    for file in plan.publish:
        if is_order(file.final):
            continue
        stream = _stream_of(file, plan)
        losses[stream] = losses.get(stream, StreamLoss()).plus(file, lost=file in lost)
    return losses


def _stream_of(file: PublishedFile, plan: Plan) -> str:
    """As the record of its table says; else by its staged path, below `staging/runs/<pipeline>/<run>/<stream>`."""
    for path, record in plan.tables.items():
        if _table_of(file.final) == _table_of_record(path):
            return record.stream
    return unquote(file.staged.removeprefix(STAGED).split("/")[2])


def _table_of(path: str) -> str:
    """The folder of a file's table: above the hive folders, if there are some; also of what tells its rows' order."""
    folders = path.removeprefix(f"{ORDERS}/").split("/")[:-1]
    while "=" in folders[-1]:
        folders.pop()
    return "/".join(folders)


def _table_of_record(path: str) -> str:
    return path.removeprefix(f"{LAKE_FOLDER}/tables/").removesuffix(".json")
