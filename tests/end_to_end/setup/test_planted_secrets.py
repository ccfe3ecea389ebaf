"""Secrets, planted by each path by which one can come in, are in nothing that a pipeline writes,
says or starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import psycopg.sql
import pyarrow.parquet as pq
import pytest

from servers.processes import command_lines
from servers.serving import serving
from servers.ssh import PASSPHRASE, Ssh

PROGRAMS = Path(sys.executable).parent
TIMEOUT_SECONDS = 200
STORED, FILED, IN_URL = "planted-in-a-store-'%42", "planted-in-a-file", "planted-in-a-url"
IN_SPARK, IN_NOTICE, WRONG = "planted-for-spark", "planted-in-a-notice", "planted-wrong-password"
IN_STATE, IN_CATALOG, IN_STORAGE = (
    "planted-in-a-state-url",
    "planted-in-a-catalog",
    "planted-for-a-store",
)
VAULT_TOKEN = "planted-token-of-vault"
# What is masked is as secret; its last digits may be shown.
MASKED = "planted-person", "411111111111"
MEMBERS = """
create table members (id bigint primary key, name text, card text, body text);
alter table members alter body set storage external;
insert into members select 4111111111110000 + n, 'planted-person' || n, '411111111111' || n,
  repeat('planted-person ', 500) from generate_series(1, 50) n
"""
# All that the log has: inserts, updates that leave a large value out, another key, deletes.
CHANGES = """
insert into members values (4111111111111000, 'planted-person', '4111111111112222',
  'planted-person');
update members set name = 'planted-person-again' where id < 4111111111110010;
update members set id = 4111111111112000 where id = 4111111111110010;
delete from members where id = 4111111111110011;
alter table members replica identity full;
update members set id = 4111111111112001 where id = 4111111111110012;
delete from members where id = 4111111111110013
"""
# What a repair finds: altered, invented and removed rows.
DIFFERENCES = """
update members set name = 'planted-person-once-more' where id % 10 = 5;
delete from members where id % 10 = 6;
insert into members values (4111111111113000, 'planted-person', '4111111111114444',
  'planted-person')
"""
# A JVM that compares a few rows.
SMALL = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"} | {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def temporary_files(folder: Path) -> Iterator[dict[str, bytes]]:
    """What lies there meanwhile, however short."""
    seen: dict[str, bytes] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            # A folder may be gone when its turn comes.
            with suppress(OSError):
                for path in folder.rglob("*"):
                    if path.is_file() and path.stat().st_size < 1 << 20:
                        seen[f"{path} {path.stat().st_size}"] = path.read_bytes()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield seen
    finally:
        over.set()
        looker.join()


@pytest.fixture
def vault() -> Iterator[str]:
    """Answers a request with the right token with the passphrase of a key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = (
                self.headers["X-Vault-Token"] == VAULT_TOKEN and self.path == "/v1/secret/data/ssh"
            )
            self.send_response(200 if known else 403)
            self.end_headers()
            self.wfile.write(
                json.dumps({"data": {"data": {"phrase": PASSPHRASE}, "metadata": {}}}).encode()
            )

        def log_message(self, *_: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@pytest.fixture
def planted(
    moto: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ssh: Ssh, vault: str
) -> list[str]:
    """All secrets; the stores, files and variables that hold them are there."""
    import boto3

    for name, value in {
        "VAULT_ADDR": vault,
        "VAULT_TOKEN": VAULT_TOKEN,
        "AWS_ENDPOINT_URL": moto.endpoint,
        "AWS_ACCESS_KEY_ID": moto.key,
        "AWS_SECRET_ACCESS_KEY": moto.secret,
        "AWS_DEFAULT_REGION": "eu-central-1",
        "SSH_KEY": Path(ssh.folder, "locked").read_text(),
        "TMPDIR": str(tmp_path / "tmp"),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "mask_key").write_text(FILED)
    client = boto3.client("secretsmanager")
    with suppress(client.exceptions.ResourceExistsException):
        client.create_secret(Name="planted/db", SecretString=json.dumps({"password": STORED}))
    body = Path(ssh.folder, "locked").read_text().splitlines()[4:-1]
    of_target = [IN_NOTICE, IN_STATE, IN_CATALOG, IN_STORAGE]
    return [
        STORED,
        FILED,
        IN_URL,
        IN_SPARK,
        WRONG,
        PASSPHRASE,
        VAULT_TOKEN,
        *of_target,
        *body,
        *MASKED,
    ]


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_planted_secrets_never_leak(
    postgresql: Any, planted: list[str], ssh: Ssh, tmp_path: Path, reader: str
) -> None:
    """No planted secret is found in anything that a run leaves behind."""
    database, lake = postgresql.new_database(), tmp_path / "lake"
    role = f"planted_{reader}"
    with psycopg.connect(database.dsn, autocommit=True) as source:
        source.execute(
            psycopg.sql.SQL("create role {} login password {}").format(
                psycopg.sql.Identifier(role), STORED
            )
        )
        source.execute("create table people (id int primary key, name text, card text)")
        source.execute(
            "insert into people select n, 'planted-person' || n, '411111111111' || n from "
            "generate_series(1000, 1200) n"
        )
        source.execute(f"grant select on people to {role}")
        source.execute(MEMBERS)
        source.execute(f"alter role {role} replication; alter table members owner to {role}")
        source.execute(f"grant create on database {database.name} to {role}")
        source.execute(f"create role state_{reader} login password '{IN_STATE}'")
        source.execute(f"create schema kept authorization state_{reader}")
        source.execute(f"alter role state_{reader} set search_path to kept")
    of_url = "" if reader == "arrow" else f"?sslpassword={IN_URL}"
    tap: dict[str, Any] = {
        "jdbc_url": database.jdbc_url + of_url,
        "tables": ["people", "members"] if reader == "arrow" else ["people"],
        "log_slot": database.name,
        "user": role,
        "password": "${aws-sm:planted/db#password}",
        "reader": reader,
        "mask_key": f"${{file:{tmp_path}/mask_key}}",
        "stream_options": {"public-people": {"mask": {"name": "hash", "card": "last4"}}},
        "ssh_tunnel": {**ssh.settings(), "private_key": "${SSH_KEY}"},
        "batch_config": {
            "encoding": {"format": "parquet"},
            "storage": {"root": f"{lake}/.dataspoc/staging/batches"},
        },
        "spark": {"master": "local[2]", "conf": {"spark.hadoop.fs.s3a.secret.key": IN_SPARK}},
    }
    del tap["ssh_tunnel"]["private_key_path"]
    # Once from a store, and once as it is written in the config.
    phrase = "${vault:secret/data/ssh#phrase}" if reader == "arrow" else PASSPHRASE
    tap["ssh_tunnel"]["private_key_password"] = phrase
    notify = [{"url": f"http://127.0.0.1:1/{IN_NOTICE}", "on": ["failed", "succeeded"]}]
    target = {
        "bucket": str(lake),
        "pipeline": "p",
        "notify": notify,
        "spark": {"master": "local[1]", "conf": SMALL},
    }
    if reader == "arrow":
        masks = {"id": "hash", "name": "hash", "card": "last4", "body": "hash"}
        of_log = {"replication_method": "LOG_BASED", "load_method": "append-only", "mask": masks}
        tap["stream_options"]["public-members"] = of_log
    else:
        place = f"{database.host}:{database.port}/{database.name}"
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "token": IN_CATALOG}
        target |= {
            "state_backend": {
                "uri": f"postgresql://state_{reader}:{IN_STATE}@{place}",
                "table_name": "states",
            },
            "format": "iceberg",
            "catalog": catalog,
            "namespace": "raw",
            "storage_options": {"key": "reader", "secret": IN_STORAGE},
        }
    with command_lines() as commands, temporary_files(tmp_path / "tmp") as temporary:
        good, reported = pipe(tmp_path, tap, target)
        assert good == (0, 0), reported
        if reader == "arrow":
            reported += followed_and_repaired(tmp_path, tap, target, database.dsn)
            reported += spark_lake(tmp_path, "report", "--output", "report.html")
            reported += spark_lake(tmp_path, "compact")
        else:
            bad, refused = pipe(tmp_path, {**tap, "password": WRONG}, target)
            assert bad != (0, 0)
            assert "authentication failed" in refused
            reported += refused
        reported += spark_lake(tmp_path, "vacuum", "--older-than", "0s")
    # All but what the secrets were planted in: the catalog's database is beside the lake.
    given = {tmp_path / name for name in ("tap.json", "target.json", "mask_key")}
    left = {
        str(path): content_of(path)
        for path in tmp_path.rglob("*")
        if path.is_file() and path not in given
    }
    assert any(path.endswith("state.json") for path in left) == (reader == "arrow")
    assert any(path.endswith("catalog.db") for path in left) == (reader == "jdbc")
    if reader == "jdbc":
        with psycopg.connect(database.dsn) as source:
            left["states"] = repr(source.execute("select * from kept.states").fetchall()).encode()
            assert b"bookmarks" in left["states"]
    assert any("/runs/" in path for path in left)
    # A key is made so by the fixture of somebody's server.
    seen = "\n".join(each for each in commands if not each.startswith("ssh-keygen"))
    places = {"log": reported.encode(), "processes": seen.encode(), **temporary, **left}
    found = {
        (place, secret)
        for place, content in places.items()
        for secret in planted
        if secret.encode() in content
    }
    assert found == set()


def pipe(folder: Path, tap: dict[str, Any], target: dict[str, Any]) -> tuple[tuple[int, int], str]:
    """Both programs, with all that they can say: their exit codes, and what they said."""
    (folder / "tap.json").write_text(json.dumps(tap))
    (folder / "target.json").write_text(json.dumps(target))
    log = folder / "log"
    with log.open("wb") as errors:
        flags = ["--config", "tap.json", "--state-from", "target.json", "--log-level", "debug"]
        first = subprocess.Popen(
            [PROGRAMS / "tap-spark-jdbc", *flags],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        second = subprocess.Popen(
            [PROGRAMS / "target-spark-lake", "--config", "target.json"],
            cwd=folder, stdin=first.stdout, stdout=errors, stderr=errors,
            env={**os.environ, "LOGLEVEL": "debug"},
        )  # fmt: skip
        assert first.stdout is not None
        first.stdout.close()
        codes = second.wait(TIMEOUT_SECONDS), first.wait(TIMEOUT_SECONDS)
    return codes, log.read_text(errors="replace")


def followed_and_repaired(
    folder: Path, tap: dict[str, Any], target: dict[str, Any], dsn: str
) -> str:
    """What is said where changes of the log are read, and then what differs is found and
    repaired.
    """
    with psycopg.connect(dsn, autocommit=True) as source:
        source.execute(CHANGES)
        codes, reported = pipe(folder, tap, target)
        assert codes == (0, 0), reported
        source.execute(DIFFERENCES)
        source.execute("select pg_drop_replication_slot(%s)", [tap["log_slot"]])
    # It keeps every version: what it does not lack is left as it is, and said.
    words = ["verify", "--tap-config", "tap.json", "--stream", "public-members", "--repair"]
    repaired = spark_lake(folder, *words, exit_code=1)
    assert "public-members, repaired: 1 missing" in repaired
    return reported + repaired


def spark_lake(folder: Path, *words: str, exit_code: int = 0) -> str:
    """A command's output."""
    done = subprocess.run(
        [PROGRAMS / "spark-lake", *words, "--log-level", "debug"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == exit_code, done.stdout
    return done.stdout


def content_of(path: Path) -> bytes:
    """What a file holds, Parquet's values as texts."""
    return path.read_bytes() + (
        repr(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else b""
    )
