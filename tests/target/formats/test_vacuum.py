"""`spark-lake vacuum`: what no kept version needs goes, and nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from faults.small_lake import NO_BEATS, dead_process
from singer_spark.errors import ConfigurationError, LockedError, StorageError
from singer_spark.store.storage import Storage
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import record, schema, state
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.delta_log.log_history import retention
from target_spark_lake.layout import Layout
from target_spark_lake.ops import spark_lake

INT = {"type": ["integer", "null"]}
ITEMS = schema(
    "s",
    {"id": INT, "name": {"type": ["string", "null"]}},
    ("id",),
    **{"x-load-method": "overwrite", "x-extent": "full"},
)
DAY = 24 * 60 * 60

pytestmark = pytest.mark.usefixtures("without_jvm")


class VacuumedLake(DeltaLake):
    """With the answers of the command, and files that are older than they are."""

    def command(self, *words: str, **settings: Any) -> Any:
        config = self.folder.parent / "target.json"
        config.write_text(
            json.dumps(
                {"bucket": str(self.folder), "pipeline": "test", "format": "delta", **settings}
            )
        )
        self.capsys.readouterr()
        assert spark_lake.command([*words, "--json", "--config", str(config)]) == 0
        return json.loads(self.capsys.readouterr().out)

    def overwrite(self, *rows: tuple[int, str], **settings: Any) -> None:
        self.load(
            ITEMS,
            *(record("s", id=id, name=name) for id, name in rows),
            state(run=rows),
            **settings,
        )

    def data(self) -> set[str]:
        return {
            path.name
            for path in (self.folder / "raw").rglob("*.parquet")
            if "_delta_log" not in str(path)
        }

    def present(self) -> set[str]:
        return {Path(path).name for path in self.table("s").file_uris()}

    def journals(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / ".dataspoc/runs/test").iterdir())

    def age(self, seconds: float, folder: str = "") -> None:
        """Makes files look as if they had been written so long ago."""
        for path in (self.folder / folder).rglob("*"):
            if path.is_file():
                os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def lake(tmp_path: Path, capsys: Any) -> VacuumedLake:
    lake = VacuumedLake(tmp_path / "lake")
    lake.capsys = capsys
    return lake


def test_unneeded_replaced_files_are_removed(lake: VacuumedLake) -> None:
    """Replaced files are removed once no kept version needs them."""
    for number in range(4):
        lake.overwrite((1, f"a{number}"), (2, "b"))
    assert (len(lake.data()), len(lake.present())) == (4, 1)
    assert lake.command("vacuum")["files"] == 0
    journals = lake.journals()
    dry = lake.command("vacuum", "--older-than", "0s", "--dry-run")
    assert (dry["run_id"], dry["tables"]["raw/s"]["files"], dry["journals"]["files"]) == (
        None,
        3,
        3,
    )
    assert {
        path.rpartition("/")[2] for path in dry["paths"] if path.startswith("raw/")
    } == lake.data() - lake.present()
    assert (len(lake.data()), lake.journals()) == (4, journals)
    done = lake.command("vacuum", "--older-than", "0s")
    assert (done["tables"], done["files"]) == (dry["tables"], dry["files"])
    assert lake.data() == lake.present()
    assert lake.rows("s", "id, name") == [(1, "a3"), (2, "b")]
    (newest, *rest) = lake.command("runs")
    assert (newest["kind"], newest["outcome"], newest["run_id"]) == (
        "vacuum",
        "succeeded",
        done["run_id"],
    )
    # The last commit's journal was needed until this run, and is the one that saved the state.
    assert [each["run_id"] for each in rest] == journals[-1:]
    assert lake.command("state", "show")["run_id"] == journals[-1]
    # Once more there is nothing to do, and no run is left of it.
    assert lake.command("vacuum", "--older-than", "0s")["run_id"] is None
    assert len(lake.journals()) == 2
    lake.overwrite((1, "c"))
    assert lake.rows("s", "id, name") == [(1, "c")]


def test_reader_of_kept_version_continues(lake: VacuumedLake) -> None:
    lake.overwrite((1, "a"))
    lake.overwrite((1, "b"))
    lake.age(2 * DAY)
    reader = DeltaTable(
        str(lake.folder / "raw/s")
    )  # opened when the table was two days old already
    lake.overwrite((1, "c"))
    done = lake.command("vacuum", "--older-than", "1d")
    # The first file was replaced two days ago; the second one just now, however old it is.
    assert done["tables"]["raw/s"]["files"] == 1
    assert reader.to_pyarrow_table()["name"].to_pylist() == ["b"]
    assert lake.rows("s", "name") == [("c",)]


def test_late_replaced_file_is_kept_for_readers(
    lake: VacuumedLake,
) -> None:
    """A run that commits, dies, and is published days later replaces its files only then."""
    lake.overwrite((1, "a"))
    lake.overwrite((1, "b"))
    entry = lake.folder / "raw/s/_delta_log" / f"{1:020d}.json"
    days = 3 * DAY * 1000
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "remove" in line:
            line["remove"]["deletionTimestamp"] -= days
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert lake.command("vacuum", "--older-than", "2d")["files"] == 0
    lake.age(2.5 * DAY)
    assert lake.command("vacuum", "--older-than", "2d")["tables"]["raw/s"]["files"] == 1


def test_table_retention_property_is_respected(lake: VacuumedLake) -> None:
    """A longer delta.deletedFileRetentionDuration of the table overrides --older-than."""
    lake.overwrite((1, "a"))
    lake.table("s").alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 3 days"}
    )
    lake.overwrite((1, "b"))
    lake.age(2 * DAY)
    lake.age(2 * DAY, "raw")
    assert lake.command("vacuum", "--older-than", "1d")["tables"] == {}
    lake.age(4 * DAY, "raw")
    assert lake.command("vacuum", "--older-than", "1d")["tables"]["raw/s"]["files"] == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 7 days", 7 * DAY),
        ("INTERVAL 1 week", 7 * DAY),
        ("interval 1 day 12 hours", 1.5 * DAY),
        ("", 0),
    ],
)
def test_delta_interval_is_parsed(text: str, seconds: float) -> None:
    assert retention({"delta.deletedFileRetentionDuration": text}, "t").total_seconds() == seconds


def test_unsupported_interval_stops_vacuum() -> None:
    with pytest.raises(StorageError, match="LAKE-081"):
        retention({"delta.deletedFileRetentionDuration": "interval 1 month"}, "t")


def test_forgotten_files_go_where_they_are_ours(
    lake: VacuumedLake,
) -> None:
    """Files that the log has forgotten go where they are ours and foreign ones only where the
    log names them.
    """
    lake.overwrite((1, "a"))
    write_deltalake(
        lake.table("s"),
        pa.table({"id": [9], "name": ["theirs"]}),
        mode="append",
        schema_mode="merge",
    )
    lake.table("s").optimize.compact()
    lake.overwrite((1, "b"))
    table = lake.table("s")
    table.create_checkpoint()
    log = lake.folder / "raw/s/_delta_log"
    for number in range(table.version()):
        (log / f"{number:020d}.json").unlink()
    (lake.folder / "raw/s/unknown.parquet").write_bytes(b"of a writer at work")
    (lake.folder / "raw/s/_change_data").mkdir()
    (lake.folder / "raw/s/_change_data/x.parquet").write_bytes(b"")
    lake.age(DAY / 2)
    stays = {*lake.present(), "unknown.parquet", "x.parquet"}
    gone = lake.data() - stays
    assert len(gone) == 3
    done = lake.command("vacuum", "--older-than", "1h")
    assert (done["tables"]["raw/s"]["files"], lake.data()) == (3, stays)
    assert lake.rows("s", "id, name") == [(1, "b")]


def test_truncated_log_counts_only_its_tombstones(
    lake: VacuumedLake,
) -> None:
    """Where the log was truncated, only the tombstones it still has count."""
    for number in range(3):
        lake.overwrite((1, f"a{number}"))
    lake.table("s").create_checkpoint()
    for number in range(2):
        (lake.folder / f"raw/s/_delta_log/{number:020d}.json").unlink()
    for path in (lake.folder / "raw/s").glob("*.parquet"):
        os.utime(path, (time.time() - 9 * DAY,) * 2)
    # The log was cleaned within the week, so nobody knows what a reader of the week still has open.
    assert lake.command("vacuum")["tables"] == {}
    assert len(lake.data()) == 3


def test_old_journals_are_removed_unless_needed(lake: VacuumedLake) -> None:
    """Journals that a later start may read are kept."""
    layout, storage = Layout("test"), Storage(str(lake.folder))
    lake.overwrite((1, "a"))
    open_run(storage, layout, process=dead_process(), lock_ttl_seconds=NO_BEATS)  # dies
    lake.load(ITEMS, record("s", id=1, name="b"))  # saves no state
    with pytest.raises(Exception, match="id"):
        lake.load(ITEMS, record("s", id="no number", name="c"))
    lake.load(ITEMS, record("s", id=1, name="c"))
    saved, rolled_back, stateless, failed, last = lake.journals()
    lake.age(8 * DAY)
    # Those runs' ids say that they are young.
    assert lake.command("vacuum", "--dry-run")["journals"]["files"] == 0
    done = lake.command("vacuum", "--older-than", "0s")
    assert done["journals"]["files"] == 2
    # The run whose lock expired can't commit, should it only have slept.
    assert lake.journals() == [saved, rolled_back, last, done["run_id"]]
    assert {stateless, failed} & set(lake.journals()) == set()
    assert lake.command("state", "show")["run_id"] == saved


def test_old_rejected_records_go(lake: VacuumedLake) -> None:
    lake.overwrite((1, "a"))
    for _ in range(2):
        lake.load(ITEMS, record("s", id="no number", name="c"), on_invalid_record="quarantine")
    other = lake.folder / ".dataspoc/rejected/other/20200101T000000000000Z-00000000/s.jsonl"
    by_hand = lake.folder / ".dataspoc/rejected/test/notes/why.txt"
    for path in (other, by_hand):
        path.parent.mkdir(parents=True)
        path.write_text("")
    assert lake.command("vacuum")["rejected"]["files"] == 0
    assert lake.command("vacuum", "--older-than", "0s")["rejected"]["files"] == 2
    left = {path for path in (lake.folder / ".dataspoc/rejected").rglob("*") if not path.is_dir()}
    assert left == {other, by_hand}
    assert [path.name for path in (lake.folder / ".dataspoc/rejected/test").iterdir()] == ["notes"]


def test_batches_without_run_expire_after_one_day(lake: VacuumedLake) -> None:
    """A shorter --older-than does not remove younger batches."""
    lake.overwrite((1, "a"))
    folder = lake.folder / ".dataspoc/staging/batches"
    folder.mkdir(parents=True)
    young, old = folder / "young.jsonl.gz", folder / "old.jsonl.gz"
    for path, age in ((young, 3600), (old, 2 * DAY)):
        path.write_bytes(b"")
        os.utime(path, (time.time() - age,) * 2)
    # The last sign of life of a holder is older than the batches.
    lake.age(3 * DAY, ".dataspoc/locks")
    assert lake.command("vacuum", "--older-than", "30m", "--dry-run")["batches"]["files"] == 1
    assert old.exists()
    assert lake.command("vacuum", "--older-than", "30m")["batches"]["files"] == 1
    assert (young.exists(), old.exists()) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["delta", "iceberg"])
def test_vacuum_keeps_files_of_other_pipelines(lake: VacuumedLake, chosen: str) -> None:
    """Covers versions, rejected records, journals, checkpoints and batches of any age."""
    other = VacuumedLake(lake.folder, f"{lake.folder}/.dataspoc/state/test2/state.json")
    # Their names begin with those of ours.
    theirs: Any = {"pipeline": "test2", "format": chosen, "on_invalid_record": "quarantine"}
    items = {**ITEMS, "stream": "s2"}
    for name in ("a", "b"):
        lake.overwrite((1, name), format=chosen)
        other.load(
            items,
            record("s2", id=1, name=name),
            record("s2", id="no number"),
            state(run=name),
            **theirs,
        )
    lake.load(ITEMS, record("s", id="no number"), format=chosen, on_invalid_record="quarantine")
    body = [
        items,
        record("s2", id=1, name="c"),
        state(sent=1),
        record("s2", id=2, name="d"),
        state(sent=2),
    ]
    with pytest.raises(Exception, match="LAKE-005"):
        other.load(*other.announced(body)[:-1], **theirs)
    assert other.checkpoint() is not None
    lake.age(9 * DAY)
    batch = lake.folder / ".dataspoc/staging/batches/young.jsonl.gz"
    batch.parent.mkdir(parents=True)
    batch.touch()

    def files() -> dict[str, bytes]:
        found = [path for path in lake.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(lake.folder)): path.read_bytes() for path in found}

    before = files()
    done = lake.command("vacuum", "--older-than", "0s", format=chosen)
    assert (list(done["tables"]), done["rejected"]["files"], done["batches"]["files"]) == (
        ["raw/s"],
        1,
        0,
    )
    ours = ("raw/s/", ".dataspoc/rejected/test/", ".dataspoc/runs/test/", ".dataspoc/locks/test/")
    after = files()
    changed = {
        path for path in before if after.get(path) != before[path] and not path.startswith(ours)
    }
    assert changed == ({".dataspoc/catalog.db"} if chosen == "iceberg" else set())
    other.load(*other.announced(body), **theirs)
    assert (IcebergLake(lake.folder) if chosen == "iceberg" else lake).rows("s2", "id") == [
        (1,),
        (2,),
    ]


def test_vacuum_refused_while_locked_or_resumable(
    lake: VacuumedLake,
) -> None:
    """Vacuum is refused while a run holds the pipeline or a dead one can be resumed."""
    body = [
        ITEMS,
        record("s", id=1, name="a"),
        state(sent=1),
        record("s", id=2, name="b"),
        state(sent=2),
    ]
    with pytest.raises(Exception, match="LAKE-005"):
        lake.load(*lake.announced(body)[:-1])
    assert lake.checkpoint() is not None
    staged = [path for path in lake.files() if "/staging/" in path]
    with pytest.raises(LockedError, match="LAKE-060"):
        lake.command("vacuum", "--older-than", "0s")
    assert [path for path in lake.files() if "/staging/" in path] == staged
    lake.load(*lake.announced(body))
    assert lake.rows("s", "id") == [(1,), (2,)]
    holder = open_run(Storage(str(lake.folder)), Layout("test"))
    with pytest.raises(LockedError, match="LAKE-060"):
        lake.command("vacuum", "--older-than", "0s")
    # It only looks, so nothing keeps it from that; the failed run left its journal.
    assert lake.command("vacuum", "--older-than", "0s", "--dry-run")["journals"]["files"] == 1
    holder.leave()


def test_invalid_age_is_refused(lake: VacuumedLake) -> None:
    with pytest.raises(ConfigurationError, match="RUN-007"):
        lake.command("vacuum", "--older-than", "a week")


def test_plain_tables_keep_no_older_versions(lake: VacuumedLake) -> None:
    for name in ("a", "b"):
        lake.overwrite((1, name), format="parquet")
    before = lake.data()
    assert lake.command("vacuum", "--older-than", "0s", format="parquet")["tables"] == {}
    assert lake.data() == before
