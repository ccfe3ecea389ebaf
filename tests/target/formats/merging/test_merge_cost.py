"""What a merge opens and rewrites depends on the change, not the table: other files may even be
unreadable.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError
from target import loading
from target.loading import Lake, record, schema
from target_spark_lake.formats.rules import Verdicts

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
UPSERT = schema(
    "s", {"id": INT, "tenant": TEXT, "note": TEXT}, ("tenant", "id"), **{"x-load-method": "upsert"}
)
FILES, ROWS = 6, 50


class Table:
    """A table of several files, each with a range of its keys' ids: file n has n * 1000, n * 1000 +
    10, …
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        for n in range(FILES):
            self.load(range(n * 1000, n * 1000 + 10 * ROWS, 10), "first")

    def load(self, ids: Iterable[int], note: str) -> None:
        self.lake.load(UPSERT, *(record("s", id=id, tenant="t", note=note) for id in ids))

    def files(self) -> list[Path]:
        """The data files, in the order of their runs."""
        return sorted((self.lake.folder / "raw/s").iterdir())

    def notes(self) -> dict[int, str]:
        return dict(self.lake.rows("s", "id, note"))

    def plan(self) -> dict[str, Any]:
        """The journal of the last run."""
        return json.loads(max((self.lake.folder / ".dataspoc/runs/test").iterdir()).read_text())

    def replaced(self) -> list[str]:
        return [Path(path).name for path in self.plan()["retire"]]

    def index(self) -> Path:
        return self.lake.folder / ".dataspoc/indexes/raw/s.json"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(Lake(tmp_path / "lake"))


def damage(path: Path, column: str | None = None) -> bytes:
    """Makes a file unreadable, or one of its columns; gives what it was."""
    whole = path.read_bytes()
    if column is None:
        path.write_bytes(bytes(len(whole)))
        return whole
    group = pq.read_metadata(path).row_group(0)
    (chunk,) = (
        each
        for each in map(group.column, range(group.num_columns))
        if each.path_in_schema == column
    )
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    end = start + chunk.total_compressed_size
    path.write_bytes(whole[:start] + random.Random(1).randbytes(end - start) + whole[end:])
    return whole


def restore(contents: dict[Path, bytes]) -> None:
    for path, data in contents.items():
        path.write_bytes(data)


def test_inserts_alone_rewrite_nothing_without_spark(table: Table, monkeypatch) -> None:
    """Inserts alone open and rewrite no file and need no Spark."""
    monkeypatch.setattr(
        "target_spark_lake.target.start_session", lambda *_: pytest.fail("Spark was started")
    )
    before = table.files()
    assert len(before) == FILES
    contents = {path: damage(path) for path in before}
    table.load([*range(-20, 0), *range(600, 620), *range(10_000, 10_020)], "second")
    assert table.replaced() == []
    restore(contents)
    assert len(table.notes()) == FILES * ROWS + 60
    assert set(before) < set(table.files())


def test_small_merges_run_without_spark(table: Table, monkeypatch) -> None:
    """Changed rows are merged without Spark unless they have too many keys."""
    started: list[object] = []

    def start(*_: object) -> None:
        started.append(1)
        raise StorageError(RunCode.STORAGE_FAILED, "Spark was started")

    monkeypatch.setattr("target_spark_lake.target.start_session", start)
    table.load([1010, 3330], "second")
    assert {id for id, note in table.notes().items() if note == "second"} == {1010, 3330}
    assert started == []
    monkeypatch.setattr("target_spark_lake.formats.parquet_merge.KEYS_IN_PROCESS", 3)
    with pytest.raises(StorageError, match="RUN-052"):
        table.load([1010, 3330], "third")
    with pytest.MonkeyPatch.context() as without_pandas:
        # Spark's Python tasks need it.
        without_pandas.setattr(
            "target_spark_lake.formats.parquet_merge.is_pandas_installed", lambda: False
        )
        table.load([1010, 3330], "third")
    monkeypatch.setitem(loading.DEFAULTS, "engine", "local")
    table.load([1010, 3330], "fourth")
    monkeypatch.setitem(loading.DEFAULTS, "engine", "spark")
    with pytest.raises(StorageError, match="RUN-052"):
        table.load([1010], "fifth")


def test_spark_merge_runs_tasks_in_its_session(spark: Any, table: Table, monkeypatch) -> None:
    monkeypatch.setitem(loading.DEFAULTS, "engine", "spark")
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    table.load([1010, 3330], "second")
    jobs = [tracker.getJobInfo(each) for each in set(tracker.getJobIdsForGroup()) - before]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert sum(stage.numCompletedTasks for stage in stages if stage) > 0
    assert {id for id, note in table.notes().items() if note == "second"} == {1010, 3330}


def test_merge_opens_and_rewrites_only_matching_files(spark: object, table: Table) -> None:
    """A merge opens only files that may hold its keys and rewrites only those that do."""
    files = table.files()
    unreadable = {files[n]: damage(files[n]) for n in (0, 2, 5)}
    # 1015 and 3333 lie between keys of files 1 and 3, which hold no such row; of these files only
    # keys are looked at.
    unreadable |= {files[n]: damage(files[n], "note") for n in (1, 3)}
    table.load([1015, 3333, 4070, 4080, 99_999], "second")
    assert table.replaced() == [files[4].name]
    # What came, as it was staged, and the rest of file 4.
    assert len(table.plan()["publish"]) == 2
    restore(unreadable)
    second = {id for id, note in table.notes().items() if note == "second"}
    assert second == {1015, 3333, 4070, 4080, 99_999}
    assert len(table.notes()) == FILES * ROWS + 3


def test_fully_replaced_file_is_not_read(spark: object, table: Table) -> None:
    files = table.files()
    before = damage(files[2], "note")
    table.load(range(2000, 2000 + 10 * ROWS, 10), "second")
    assert table.replaced() == [files[2].name]
    assert before
    assert [note for id, note in table.notes().items() if 2000 <= id < 3000] == ["second"] * ROWS


@pytest.mark.parametrize("left", [None, b"{", b'{"format_version": 1, "files": {"raw/s/x": 7}}'])
def test_lost_or_damaged_index_is_rebuilt(spark: object, table: Table, left: bytes | None) -> None:
    """A lost or damaged index is rebuilt, and the result is the same."""
    table.index().unlink() if left is None else table.index().write_bytes(left)
    table.load([5, 4070], "second")
    assert len(table.replaced()) == 1
    assert sum(note == "second" for note in table.notes().values()) == 2
    known = json.loads(table.index().read_text())["files"]
    assert sorted(Path(path).name for path in known) == [path.name for path in table.files()]


def test_newer_index_version_is_refused(table: Table) -> None:
    table.index().write_text('{"format_version": 2}')
    with pytest.raises(StorageError, match="RUN-041"):
        table.load([1], "second")


def test_index_tracks_appends_and_removed_files(spark: object, table: Table) -> None:
    """The index accounts for appends and for files that people removed."""
    gone, *_ = table.files()
    gone.unlink()
    append = {**UPSERT, "schema": {**UPSERT["schema"], "x-load-method": "append-only"}}
    table.lake.load(
        append,
        record("s", id=10, tenant="t", note="appended"),
        record("s", id=1010, tenant="t", note="b"),
    )
    table.load([0, 1010], "second")
    notes = table.lake.rows("s", "id, note")
    assert len(notes) == len(dict(notes)) == (FILES - 1) * ROWS + 2
    assert {note for id, note in notes if id in (0, 1010)} == {"second"}


@pytest.mark.parametrize("tenants", [["a", "b"], ["é", "ü"]])
def test_composite_key_is_pruned_by_all_columns(
    spark: object, tmp_path: Path, tenants: list[str]
) -> None:
    """File pruning for a composite key uses the ranges of all its columns."""
    lake = Lake(tmp_path / "lake")
    for tenant in tenants:
        for start in (0, 1000):
            lake.load(
                UPSERT, *(record("s", id=start + n, tenant=tenant, note="first") for n in range(5))
            )
    files = sorted((lake.folder / "raw/s").iterdir())
    others = {path: damage(path) for path in (*files[:2], files[3])}
    lake.load(UPSERT, record("s", id=3, tenant=tenants[1], note="second"))
    restore(others)
    assert lake.rows(
        "s",
        "tenant, id",
    ) == sorted((tenant, start + n) for tenant in tenants for start in (0, 1000) for n in range(5))
    assert set(files) - set((lake.folder / "raw/s").iterdir()) == {files[2]}


class Looks(dict[int, dict[str, int]]):
    """Counts each entry that is looked at."""

    looks = 0

    def __getitem__(self, key: int) -> dict[str, int]:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[int]:
        self.looks += len(self)
        return super().__iter__()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


def test_verdict_lookup_is_independent_of_file_count() -> None:
    """The verdicts of a file are looked up without scanning those of other files."""
    found: Any = Looks({number: {"drop": number, "mark": 1} for number in range(1000)})
    verdicts = Verdicts(rows=None, by_number=found)
    for number in range(1000):
        assert verdicts.of_file(((0, number),)) == {"drop": number, "mark": 1}
    assert verdicts.of_file(((0, 1000),)) == {}
    assert found.looks <= 1001
    # A file that was joined has several.
    assert verdicts.of_file(((0, 1), (5, 3))) == {"drop": 4, "mark": 2}
    assert verdicts.count("mark") == 1000
