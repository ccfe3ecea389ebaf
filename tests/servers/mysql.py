"""A real MySQL on a free port, of Debian's unstable branch: for the tests' fixture, and by hand.

`python -m servers.mysql --build` unpacks it with the libraries that it needs into the user's cache,
once, where apt and Debian's keyring are; nothing is installed, and root is not needed. Where it
can't be had its tests are skipped, and in CI they fail. `python -m servers.mysql [--data DIR]`
prints a JSON line and serves until it is ended.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from servers.built import made, run
from servers.child import FOLLOW, serve
from servers.mariadb import MariaDatabase, MariaDB, wait_until_ready
from servers.postgresql import free_port
from singer_spark.engine.java import cache_folder

USER = "root"
PACKAGE = "mysql-server-core"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
# The machine's own mirror of Debian: its security updates, and what else the machine installs from,
# end otherwise.
MIRROR = re.compile(r"^[^#\n]*?\b(https?://\S+/debian/?)(?=\s|$)", re.MULTILINE)
# What the server only needs for a script of its own.
NOT_NEEDED = re.compile(r"perl|libperl|libgdbm|libdb5")
# Kept small: a new folder begins as a copy of the first one.
FILES = {"innodb-redo-log-capacity": "8M", "innodb-flush-method": "nosync"}
SETTINGS = {
    **FILES,
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "innodb-buffer-pool-size": "128M",
    "innodb-flush-log-at-trx-commit": "0",
    "sync-binlog": "0",
    # The rows must not depend on the zone or the modes that the server was given.
    "default-time-zone": "-03:30",
    "sql-mode": "ANSI_QUOTES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION",
}


class MySQLDatabase(MariaDatabase):
    """One database of the server; its `connect` has encryption, as the account's login method
    requires it.
    """

    @property
    def is_mysql(self) -> bool:
        return True

    @property
    def jdbc_url(self) -> str:
        """With what its default way of login takes where there is no encryption."""
        return f"jdbc:mysql://{self.host}:{self.port}/{self.name}?allowPublicKeyRetrieval=true"


class MySQL(MariaDB):
    """A running server and its superuser."""

    def database(self, name: str) -> MySQLDatabase:
        return MySQLDatabase(name, self.host, self.port, self.user, self.password)


def unpacked() -> Path | None:
    """The folder of the newest server in the cache, with an empty data directory; None if there is
    none.
    """
    found = (cache_folder() / "mysql").glob("*/usr/sbin/mysqld")
    return max(
        (each.parents[2] for each in found), key=lambda each: each.stat().st_mtime, default=None
    )


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    return None if unpacked() else "no MySQL was unpacked: python -m servers.mysql --build"


def build() -> str:
    """Unpacks the server, unless it was; says in one line how it went."""
    if root := unpacked():
        return f"MySQL is there: {root}"
    lacking = "MySQL's tests are skipped, in CI they fail"
    mirror = next(
        (
            found[1]
            for each in SOURCES
            if each.exists() and (found := MIRROR.search(each.read_text()))
        ),
        None,
    )
    if mirror is None or not KEYRING.exists() or shutil.which("dpkg-deb") is None:
        return f"MySQL is not built, {lacking}: this is no Debian"

    def unpack(folder: Path) -> None:
        try:
            version = _fetched(folder, mirror)
        except subprocess.CalledProcessError:
            # The branch may have moved between its list and its packages.
            version = _fetched(folder, mirror)
        root = folder / "root"
        _initialised(root, root / "data")
        place.mkdir(exist_ok=True)
        with suppress(FileExistsError):  # another build was first
            root.rename(place / version)

    place = cache_folder() / "mysql"
    return made("MySQL", place, unpack, lacking)


def _fetched(folder: Path, mirror: str) -> str:
    """The server and its libraries in `root` of the folder; its version. By an apt of its own."""
    downloads = folder / "downloads"
    for each in (folder / "lists/partial", folder / "cache/archives/partial", downloads):
        each.mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} sid main\n")
    own = {
        "Dir::Etc::SourceList": folder / "sources.list", "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null", "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State::Lists": folder / "lists", "Dir::State::Status": "/dev/null",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root", "Acquire::Languages": "none", "Acquire::Retries": "2",
    }  # fmt: skip
    options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]

    def apt(program: str, *words: str) -> str:
        return run([program, *options, *words], os.environ, cwd=downloads)

    apt("apt-get", "update")
    only = [
        f"--no-{each}"
        for each in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    ]
    listed = apt(
        "apt-cache", "depends", "--recurse", *only, "--no-pre-depends", PACKAGE
    ).splitlines()
    needed = {
        each for each in listed if re.match("lib|zlib1g$", each) and not NOT_NEEDED.match(each)
    }
    apt("apt-get", "download", PACKAGE, *sorted(needed))
    for package in downloads.iterdir():
        run(["dpkg-deb", "-x", str(package), str(folder / "root")], os.environ)
    shutil.rmtree(folder / "root/usr/bin")
    (server,) = downloads.glob(f"{PACKAGE}_*")
    return server.name.split("_")[1]


def _program(root: Path) -> list[str | Path]:
    """The server's command: its own loader and C library, as those of the machine may be older."""
    (loader,) = root.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*")
    libraries = f"{loader.parent}:{root / 'usr/lib/mysql/private'}"
    share = root / "usr/share/mysql"
    places: list[str | Path] = [f"--basedir={root / 'usr'}", f"--lc-messages-dir={share}"]
    places += [
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
    ]
    account = ["--user=root"] if os.geteuid() == 0 else []
    command = [
        loader,
        "--library-path",
        libraries,
        root / "usr/sbin/mysqld",
        "--no-defaults",
        *places,
        *account,
    ]
    return [*command, "--secure-file-priv=NULL", "--mysqlx=OFF"]


def _initialised(root: Path, data: Path) -> None:
    """An empty data directory, with which each server begins: to make one takes eight seconds."""
    options = [f"--{name}={value}" for name, value in FILES.items()]
    run(
        [*map(str, _program(root)), "--initialize-insecure", f"--datadir={data}", *options],
        os.environ,
    )
    (data / "auto.cnf").unlink(missing_ok=True)  # the server's own id


@contextmanager
def running(folder: Path, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """A server whose files lie in the folder, made there if it is new; stopped at the end.

    Args:
        settings: More settings, `name=value`.
    """
    root = unpacked()
    if root is None:
        raise RuntimeError(missing())
    folder.mkdir(parents=True, exist_ok=True)
    data, log, start = folder / "data", folder / "log", folder / "start.sql"
    if not (data / "mysql.ibd").exists():
        shutil.copytree(root / "data", data, dirs_exist_ok=True)
    password = secrets.token_urlsafe(12)
    login = f"'{USER}'@'127.0.0.1'"
    start.touch(mode=0o600)
    start.write_text(
        f"create user if not exists {login};\nalter user {login} identified by '{password}';\n"
        f"grant all privileges on *.* to {login} with grant option;\n"
    )
    facts = {"host": "127.0.0.1", "port": free_port(), "user": USER, "password": password}
    options = [f"--{name}={value}" for name, value in {**SETTINGS, "port": facts["port"]}.items()]
    options += [f"--{each}" for each in settings]
    places = [f"--datadir={data}", f"--tmpdir={folder}", f"--socket={folder / 'socket'}"]
    places += [f"--pid-file={folder / 'pid'}", f"--init-file={start}"]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*_program(root), *places, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
        )
    try:
        wait_until_ready(server, facts, log)
        yield facts
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build", action="store_true", help="only unpack the server, if it is not there"
    )
    parser.add_argument(
        "--data", type=Path, help="folder to keep; else a new one, removed at the end"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    if arguments.build:
        print(build(), file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="mysql-") as scratch:
        with running(
            arguments.data.resolve() if arguments.data else Path(scratch), arguments.set
        ) as facts:
            serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
