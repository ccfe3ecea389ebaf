"""A reader of the lake that shares no code with what it checks, and a thread of it that looks all
the time.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import threading
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import fsspec
import pyarrow.parquet as pq

from faults.shop import COLUMNS, KEYS, Known, Row

BETWEEN_LOOKS = 0.03
LAKE_FOLDER = ".dataspoc"


@dataclass(frozen=True)
class Look:
    """What is in the lake at one time.

    Attributes:
        published: Runs that were published before we looked.
        state: The published state.
        files: Rows of each data file, by table.
    """

    published: frozenset[str]
    state: dict[str, Any] | None
    files: dict[str, dict[str, list[Row]]]

    def rows(self, table: str) -> Counter[Row]:
        return Counter(row for rows in self.files.get(table, {}).values() for row in rows)

    def bookmark(self, stream: str) -> Any:
        entry = (self.state or {}).get("bookmarks", {}).get(stream)
        value = entry["replication_key_value"] if entry else None
        return dt.datetime.fromisoformat(value) if isinstance(value, str) else value


@dataclass
class LakeReader:
    """Looks at the lake of one pipeline.

    Attributes:
        bucket: Folder or URL.
        options: fsspec's, of its storage.
        pipeline: Its name.
        prefix: What precedes a table's name in its stream's name.
    """

    bucket: str
    options: dict[str, Any]
    pipeline: str
    prefix: str = ""
    _contents: dict[str, list[Row]] = field(default_factory=dict)
    _journals: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fresh = {"use_listings_cache": False, "skip_instance_cache": True}
        self.files, self.root = fsspec.core.url_to_fs(self.bucket, **fresh, **self.options)

    @property
    def is_local(self) -> bool:
        return "://" not in self.bucket

    def paths(self, below: str = "") -> list[str]:
        """All objects below a folder of the bucket, relative to the bucket."""
        found = self.files.find(f"{self.root}/{below}".rstrip("/"))
        return sorted(path[len(self.root) + 1 :] for path in found)

    def read(self, path: str) -> bytes | None:
        try:
            return bytes(self.files.cat_file(f"{self.root}/{path}"))
        except FileNotFoundError:
            return None

    def state_bytes(self) -> bytes | None:
        return self.read(f"{LAKE_FOLDER}/state/{self.pipeline}/state.json")

    def checkpoint(self) -> dict[str, Any] | None:
        """What the next run can continue from: written after the last commit, and not made void."""
        data = self.read(f"{LAKE_FOLDER}/state/{self.pipeline}/checkpoint.json")
        body = {} if data is None else json.loads(data)
        return body if body and body["after"] == max(self.committed_runs(), default=None) else None

    def staged_files(self) -> dict[str, int]:
        """Path of each staged file that the checkpoint names, with its rows."""
        checkpoint = self.checkpoint()
        streams = checkpoint["target"]["streams"].values() if checkpoint else ()
        return {file["path"]: file["rows"] for stream in streams for file in stream["files"]}

    def locks(self) -> list[dict[str, Any]]:
        """The existing generations of the lock, oldest first."""
        contents = [self.read(path) for path in self.paths(f"{LAKE_FOLDER}/locks")]
        return sorted(
            (json.loads(data) for data in contents if data), key=lambda lock: lock["generation"]
        )

    def committed_runs(self) -> dict[str, dict[str, Any]]:
        """Journals of the committed runs by their ids, oldest first."""
        for path in self.paths(f"{LAKE_FOLDER}/runs/{self.pipeline}"):
            run = path.rpartition("/")[2].removesuffix(".json")
            done = self._journals.get(run, {}).get("phase") in ("published", "aborted")
            # One of a failed run may be pruned while we look.
            if not done and (data := self.read(path)) is not None:
                self._journals[run] = json.loads(data)
        committed = {
            run: body for run, body in self._journals.items() if body["phase"] != "aborted"
        }
        return dict(sorted(committed.items()))

    def data_paths(self) -> list[str]:
        """The files that a plain reader of the tables finds."""
        return [path for path in self.paths("raw") if path.endswith(".parquet")]

    def look(self) -> Look:
        """State first, then the tables: what the state speaks of must be there by then."""
        published = frozenset(
            run for run, body in self.committed_runs().items() if body["phase"] == "published"
        )
        data = self.state_bytes()
        paths = self.data_paths()
        while not (all(self._known(path) for path in paths) and paths == self.data_paths()):
            paths = self.data_paths()  # a file was retired, or came, while we looked
        files: dict[str, dict[str, list[Row]]] = {}
        for path in paths:
            files.setdefault(path.split("/")[1].removeprefix(self.prefix), {})[path] = (
                self._contents[path]
            )
        return Look(published, None if data is None else json.loads(data), files)

    def _known(self, path: str) -> bool:
        """Reads a data file that was not seen before; false when it is gone."""
        if path not in self._contents:
            data = self.read(path)
            if data is None:
                return False
            columns = list(COLUMNS[path.split("/")[1].removeprefix(self.prefix)])
            table = pq.read_table(io.BytesIO(data), columns=columns)
            self._contents[path] = [tuple(row.values()) for row in table.to_pylist()]
        return True

    def check(self, known: Known, look: Look | None = None) -> Look:
        """What holds at any moment: only committed rows, none twice, and the state is not ahead of
        them.
        """
        look = look or self.look()
        self._check_runs(look)
        for table, key in KEYS.items():
            rows, bookmark = look.rows(table), look.bookmark(self.prefix + table)
            assert rows <= known.ever[table], (
                f"{table}: repeated or unknown {list((rows - known.ever[table]).items())}"
            )
            if bookmark is None:
                continue
            below = Counter(row for row in known.now[table] if row[key] < bookmark)
            at = Counter(row for row in known.before.get(table, ()) if row[key] == bookmark)
            lacking = (below | (at & Counter(known.now[table]))) - rows
            assert not lacking, (
                f"{table}: the state {bookmark} is ahead, these are not there: {list(lacking)}"
            )
        return look

    def _check_runs(self, look: Look) -> None:
        """All files belong to committed runs, and one run's files of the overwritten table are all
        there.
        """
        committed = self.committed_runs()
        paths = {path for files in look.files.values() for path in files}
        runs = {path.rpartition("/")[2].rpartition("-")[0] for path in paths}
        assert runs <= set(committed), (
            f"files of runs that did not commit: {sorted(runs - set(committed))}"
        )
        folder = f"raw/{self.prefix}customers/"
        overwrites = {
            run: {each["final"] for each in body["publish"]} for run, body in committed.items()
        }
        overwrites = {
            run: {path for path in each if path.startswith(folder)}
            for run, each in overwrites.items()
        }
        standing = max((run for run in look.published if overwrites[run]), default=None)
        if standing is not None:
            whole = [
                run
                for run, each in overwrites.items()
                if run >= standing and each and each <= paths
            ]
            assert whole, f"of no run are all customers there: {sorted(paths)}"

    def check_good(
        self, known: Known, published: dict[str, Counter[Row]], untaken: Set[str] = frozenset()
    ) -> Look:
        """What holds after a good run: the tables are the source, and nothing is left behind.

        Args:
            known: The shop.
            published: What the appended tables held before the run.
            untaken: Files of earlier runs that may still be there.
        """
        look = self.check(known)
        assert look.rows("customers") == Counter(known.now["customers"])
        for table in KEYS:
            rows = look.rows(table)
            lacking = (Counter(known.now[table]) | published[table]) - rows
            assert not lacking, f"{table} lacks {list(lacking)}"
        folders = ("raw", "locks", "runs", "state", "tables")
        left = [
            path
            for path in self.paths()
            if path.removeprefix(f"{LAKE_FOLDER}/").split("/")[0] not in folders
        ]
        left = [path for path in left if path not in untaken]
        assert left == [], f"left behind: {left}"
        assert self.paths(f"{LAKE_FOLDER}/state") == [
            f"{LAKE_FOLDER}/state/{self.pipeline}/state.json"
        ]
        (lock,) = self.locks()
        assert lock["released"] is True
        return look


@contextmanager
def watched(reader: LakeReader, known: Known) -> Iterator[list[Look]]:
    """A reader in a loop beside the block; yields all that it saw, and fails at the end if a look
    was wrong.
    """
    over = threading.Event()
    looks: list[Look] = []
    wrong: list[BaseException] = []

    def watch() -> None:
        # On a bucket each look is a few requests, and the server works on this machine, too.
        while not over.wait(BETWEEN_LOOKS if reader.is_local else 10 * BETWEEN_LOOKS):
            try:
                look = reader.look()
                if not looks or look != looks[-1]:
                    looks.append(reader.check(known, look))
            except BaseException as error:
                wrong.append(error)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()
    if wrong:
        raise wrong[0]
