"""A real MariaDB on a free port, of the machine's own package: for the tests' fixture, and by hand.

`python -m servers.mariadb [--data DIR]` prints a JSON line and serves until it is ended.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from servers.child import FOLLOW, serve
from servers.postgresql import free_port

USER = "root"
START_SECONDS = 180
# Debian keeps the server where only root's search path leads.
SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
LOG_SIZE = "8M"
SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "innodb-buffer-pool-size": "128M",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "nosync",
    "sync-frm": "0",
    "innodb-log-file-size": LOG_SIZE,
    # The rows must not depend on the zone, the modes or the encoding that the server was given.
    "default-time-zone": "-03:30",
    "sql-mode": "ANSI_QUOTES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION",
    "character-set-server": "utf8mb4",
    # For streams that are read from the log; MySQL has these by default.
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "server-id": "1",
    "sync-binlog": "0",
}


@dataclass(frozen=True)
class MariaDatabase:
    """One database of the server."""

    name: str
    host: str
    port: int
    user: str
    password: str

    @property
    def is_mysql(self) -> bool:
        """Whether the server is MySQL, which lacks some statements and types of MariaDB's."""
        return False

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:mariadb://{self.host}:{self.port}/{self.name}"

    def connect(self) -> pymysql.Connection:
        """A connection in UTC under the plain rules: values are stored as they are, backslashes are
        no escapes.
        """
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=self.name,
            charset="utf8mb4",
            autocommit=True,
            sql_mode="NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES",
            init_command="SET time_zone = '+00:00'",
            ssl_disabled=not self.is_mysql,
        )


@dataclass(frozen=True)
class MariaDB:
    """A running server and its superuser."""

    host: str
    port: int
    user: str
    password: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    def database(self, name: str) -> MariaDatabase:
        return MariaDatabase(name, self.host, self.port, self.user, self.password)

    def new_database(self) -> MariaDatabase:
        """An empty database that no one else uses."""
        database = self.database(f"test_{next(self.numbers)}")
        with self.database("mysql").connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {database.name}")
        return database


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    lacking = [
        name
        for name in ("mariadbd", "mariadb-install-db")
        if shutil.which(name, path=SEARCH_PATH) is None
    ]
    return (
        f"no {' and no '.join(lacking)} on this machine: install mariadb-server"
        if lacking
        else None
    )


@contextmanager
def running(folder: Path, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """A server whose files lie in the folder, made there if it is new; stopped at the end.

    Args:
        settings: More settings, `name=value`.
    """
    account = _account()
    folder.mkdir(parents=True, exist_ok=True)
    if account:
        os.chown(folder, account.pw_uid, account.pw_gid)
    data, log, socket, start = (
        folder / "data",
        folder / "log",
        folder / "socket",
        folder / "start.sql",
    )
    common = [
        f"--datadir={data}",
        f"--tmpdir={folder}",
        *([f"--user={account.pw_name}"] if account else []),
    ]
    if not (data / "mysql").exists():
        quick = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        quick += ["--innodb-flush-method=nosync", f"--innodb-log-file-size={LOG_SIZE}"]
        done = subprocess.run(
            [_program("mariadb-install-db"), "--no-defaults", *common, *quick],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
    password = secrets.token_urlsafe(12)
    login = f"'{USER}'@'127.0.0.1'"
    start.touch(mode=0o600)
    start.write_text(
        f"create or replace user {login} identified by '{password}';\n"
        f"grant all privileges on *.* to {login} with grant option;\n"
    )
    if account:
        os.chown(start, account.pw_uid, account.pw_gid)
    facts = {"host": "127.0.0.1", "port": free_port(), "user": USER, "password": password}
    options = [f"--{name}={value}" for name, value in {**SETTINGS, "port": facts["port"]}.items()]
    options += [f"--{each}" for each in settings]
    places = [f"--socket={socket}", f"--pid-file={folder / 'pid'}", f"--init-file={start}"]
    with log.open("w") as output:
        server = subprocess.Popen(
            [_program("mariadbd"), "--no-defaults", *common, *places, *options],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
        )  # fmt: skip
    try:
        wait_until_ready(server, facts, log)
        yield facts
    finally:
        # A clean end would write what nobody reads any more; a folder that is kept is put right by
        # the next start.
        server.kill()
        server.wait()


def _program(name: str) -> str:
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        raise RuntimeError(missing())
    return found


def _account() -> pwd.struct_passwd | None:
    """MariaDB refuses to run as root: then the account with the fewest rights."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def wait_until_ready(server: subprocess.Popen[bytes], facts: dict[str, Any], log: Path) -> None:
    """Returns when the server takes the login; RuntimeError with its log: it does not."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            pymysql.connect(**facts, database="mysql").close()
            return
        except pymysql.err.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from error
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="folder to keep; else a new one, removed at the end"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mariadb-") as scratch:
        with running(
            arguments.data.resolve() if arguments.data else Path(scratch), arguments.set
        ) as facts:
            serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
