"""Random transactions against LOG_BASED streams, with tap and target killed at any moment: by hand,
not in the suite.

`python tests/soak/log_changes.py --rounds 30 --format delta --method append-dedup` starts a
server of its own, `--server mariadb` and `--server mysql` one that has a binlog. After each good
run the tables must be the source's, and a history must hold every change once, in order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import mariadb, mysql
from servers.postgresql import PostgreSQL, running
from soak.binlog_source import BinlogSource
from soak.log_source import KEYS, NOTES, Row, Source

BIN = Path(sys.executable).parent
# These JVMs end before what their second compiler makes has paid for itself.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


class Pipe:
    """The pipeline, in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        database: Any,
        schema: str,
        source: Source | BinlogSource,
        options: argparse.Namespace,
    ) -> None:
        self.folder, self.source, self.options = folder, source, options
        self.took, self.schema = 15.0, schema
        spark = {"master": "local[2]"}
        tap = {
            "jdbc_url": database.jdbc_url,
            "user": database.user,
            "password": database.password,
            "spark": spark,
        }
        tap |= {"schemas": [schema], "tables": list(KEYS)}
        tap["stream_options"] = {"*": {"replication_method": "LOG_BASED"}}
        if options.batches:
            root = str(folder / "lake/.dataspoc/staging/batches")
            tap["batch_config"] = {"encoding": {"format": "parquet"}, "storage": {"root": root}}
        if options.rows:
            tap["max_run_rows"] = options.rows
        target = {
            "bucket": str(folder / "lake"),
            "pipeline": "soak",
            "spark": spark,
            "format": options.format,
        }
        target |= {"hard_delete": options.hard}
        if options.method:
            target["stream_options"] = {"*": {"load_method": options.method}}
        (folder / "tap.json").write_text(json.dumps(tap))
        (folder / "target.json").write_text(json.dumps(target))

    def run(self, *flags: str, kill_after: float | None = None, victim: int = 0) -> bool:
        """Runs the pipe; with a time, one of its ends is killed then. Whether both ended well."""
        target_config = self.folder / "target.json"
        with (self.folder / "log.txt").open("ab") as log:
            log.write(f"--- {flags} {kill_after} {victim}\n".encode())
            log.flush()  # before the programs write theirs
            began = time.monotonic()
            tap = subprocess.Popen(
                [
                    BIN / "tap-spark-jdbc",
                    "--config",
                    self.folder / "tap.json",
                    "--state-from",
                    target_config,
                    *flags,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            target = subprocess.Popen(
                [BIN / "target-spark-lake", "--config", target_config],
                stdin=tap.stdout, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            )  # fmt: skip
            assert tap.stdout is not None
            tap.stdout.close()
            if kill_after is not None:
                end = time.monotonic() + kill_after
                while time.monotonic() < end and target.poll() is None:
                    time.sleep(0.05)
                for each in ([tap], [target], [tap, target])[victim]:
                    with suppress(ProcessLookupError):
                        os.killpg(each.pid, signal.SIGKILL)
            codes = tap.wait(), target.wait()
        if kill_after is None:
            self.took = time.monotonic() - began
        return codes == (0, 0)

    def table(self, name: str, suffix: str = "") -> pa.Table:
        """By their names files lie in the order in which they came."""
        path = self.folder / f"lake/raw/{self.schema}-{name}{suffix}"
        if self.options.format == "delta":
            files = DeltaTable(path).file_uris()
        elif self.options.format == "iceberg":
            catalog = SqlCatalog("lake", uri=f"sqlite:///{self.folder}/lake/.dataspoc/catalog.db")
            scan = catalog.load_table(("raw", path.name)).scan()
            if not suffix:
                return scan.to_arrow()
            files = [each.file.file_path.removeprefix("file://") for each in scan.plan_files()]
        else:
            files = list(map(str, path.rglob("*.parquet")))
        if not files:  # the table was emptied
            return pa.table(
                {"_sdc_lsn": pa.array([], pa.int64())}
                | {each: pa.array([]) for each in self.source.columns[name]}
            )
        schema = pa.unify_schemas(map(pq.read_schema, files), promote_options="permissive")
        return ds.dataset(sorted(files), schema=schema, format="parquet").to_table()

    def rows(self, name: str) -> Counter[Row]:
        table = self.table(name)
        if "_sdc_deleted_at" in table.column_names:
            table = table.filter(pc.is_null(table.column("_sdc_deleted_at")))
        columns = self.source.columns[name]
        lacking = [None] * table.num_rows
        found = [
            table.column(each).to_pylist() if each in table.column_names else lacking
            for each in columns
        ]
        return Counter(zip(*found, strict=True))

    def versions(self, name: str) -> dict[Row, list[tuple[str, int | None]]]:
        """Of each key in a history: its versions and their places in the log, in the order of the
        table.
        """
        table = self.table(name, "__history")
        keys = [[str(value) for value in table.column(each).to_pylist()] for each in KEYS[name]]
        deleted = [each is not None for each in table.column("_sdc_deleted_at").to_pylist()]
        lsns = table.column("_sdc_lsn").to_pylist()
        found: dict[Row, list[tuple[str, int | None]]] = {}
        for *key, what, gone, lsn in zip(
            *keys, table.column(NOTES[name]).to_pylist(), deleted, lsns, strict=True
        ):
            found.setdefault(tuple(key), []).append(("deleted" if gone else what, lsn))
        return found


class Histories:
    """The histories, from a moment on at which nothing was open and all was in them."""

    def __init__(self) -> None:
        self.after = 0
        self.known: dict[str, dict[Row, int]] | None = None

    def begin(self, pipe: Pipe) -> None:
        """A table was read whole: what comes from now on is compared."""
        found = {name: pipe.versions(name) for name in KEYS}
        if self.known is None:
            for name, versions in found.items():
                changes = pipe.source.changes(name, 0)
                for key, each in versions.items():
                    logged = [what for what, lsn in each if lsn is not None]
                    assert logged == changes[key][len(changes[key]) - len(logged) :], (
                        name,
                        key,
                        each,
                        changes[key],
                    )
        self.known = {
            name: {key: len(each) for key, each in versions.items()}
            for name, versions in found.items()
        }

    def check(self, pipe: Pipe) -> int:
        """Each change came once, and those of a key in their order; gives how many."""
        count = 0
        for name in KEYS:
            assert self.known is not None
            changes = dict(pipe.source.changes(name, self.after))
            for key, each in pipe.versions(name).items():
                new = [what for what, _ in each[self.known[name].get(key, 0) :]]
                assert new == changes.pop(key, []), (
                    name,
                    key,
                    each,
                    pipe.source.changes(name, self.after)[key],
                )
                lsns = [lsn for _, lsn in each if lsn is not None]
                assert lsns == sorted(lsns), (name, key, each)
                count += len(new)
            assert not changes, (name, changes)
        return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--server", default="postgresql", choices=["postgresql", "mariadb", "mysql"]
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--format", default="parquet", choices=["parquet", "delta", "iceberg"])
    parser.add_argument("--method", default="", choices=["", "upsert", "append-dedup"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print("seed", options.seed, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # the server may run as another account
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with served(options.server, Path(scratch) / "server", chance) as (database, schema, source):
            source.write(30)
            source.end_all()  # a slot waits for them
            pipe, histories = Pipe(folder, database, schema, source, options), Histories()
            for number in range(options.rounds):
                for _ in range(chance.randrange(3)):
                    source.write(chance.randrange(10))
                    killed = chance.uniform(1, pipe.took) if chance.random() < 0.8 else None
                    done = while_written(
                        source, pipe, kill_after=killed, victim=chance.randrange(3)
                    )
                    end = "" if killed is None else f"killed after {killed:.1f} s, "
                    print(f"round {number}: {end}{'done' if done else 'dead'}", flush=True)
                source.write(chance.randrange(40))
                flags = ["--full"] if number and chance.random() < 0.1 else []
                if flags or not number:  # a slot is made, which waits for them
                    source.end_all()
                begins = bool(flags) or not number
                while True:
                    after = source.last_change()
                    assert pipe.run(*flags), (folder / "log.txt").read_text()[-3000:]
                    flags = []
                    if not options.rows or _is_at_end(pipe):
                        break
                for table in KEYS:
                    ours, theirs = pipe.rows(table), source.rows(table)
                    assert ours == theirs, (table, shown(ours - theirs), shown(theirs - ours))
                reported = f"{sum(map(len, map(source.rows, KEYS)))} rows agree"
                if options.method == "append-dedup":
                    if begins:
                        histories.begin(pipe)
                        histories.after = after
                    reported += f", {histories.check(pipe)} versions"
                print(f"round {number}: {pipe.took:.0f} s, {reported}", flush=True)


@contextmanager
def served(
    name: str, folder: Path, chance: random.Random
) -> Iterator[tuple[Any, str, Source | BinlogSource]]:
    """A database, the schema of its tables, and its writers."""
    if name == "postgresql":
        with running(folder, logical_decoding_work_mem="64kB") as facts:
            server = PostgreSQL(**facts)
            with psycopg.connect(server.database("postgres").dsn, autocommit=True) as connection:
                connection.execute("CREATE DATABASE soak")
            database = server.database("soak")
            yield database, "public", Source(database.dsn, chance)
        return
    module, kind = (mysql, mysql.MySQL) if name == "mysql" else (mariadb, mariadb.MariaDB)
    with module.running(folder) as facts:
        made = kind(**facts).new_database()
        yield made, made.name, BinlogSource(made, chance)


def while_written(source: Source | BinlogSource, pipe: Pipe, **kill: Any) -> bool:
    """A run while others write; one that is not killed may still give way to a DDL statement."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.5):
            source.write(3)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return pipe.run(**kill)
    finally:
        over.set()
        writer.join()


def _is_at_end(pipe: Pipe) -> bool:
    reported = (pipe.folder / "log.txt").read_text().rsplit("---", 1)[-1]
    return (
        "the next run continues there" not in reported and "not begun in this run" not in reported
    )


def shown(rows: Counter[Row]) -> list[str]:
    return [" ".join(str(each)[:20] for each in row) for row in rows][:5]


if __name__ == "__main__":
    main()
