"""Real servers, started when the first test asks for one, ended with the session: also after Ctrl-C
or SIGTERM.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from needed import need
from servers import azure as azure_server
from servers import browser as web
from servers import google as google_server
from servers import mariadb as mariadb_server
from servers import mysql as mysql_server
from servers import postgresql as postgresql_server
from servers import ssh as ssh_server
from servers.azure import AzureStore
from servers.built import memory_disk
from servers.child import started
from servers.google import GoogleStore
from servers.mariadb import MariaDB
from servers.mysql import MySQL
from servers.postgresql import PostgreSQL
from servers.s3 import MODULES, S3, chosen_server, described
from servers.ssh import Ssh
from singer_spark import errors
from tap_spark_jdbc.source.open_connections import ServerWatch

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession


# A test that uses one of these is left out of `--quick`, as all of `end_to_end`, and what is marked
# `slow`.
SERVERS = {
    "spark",
    "postgresql",
    "older_postgresql",
    "mariadb",
    "mysql",
    "ssh",
    "s3",
    "moto",
    "google",
    "azure",
    "store",
    "browser",
}

# How long an example takes depends on what else the machine does.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("suite"), max_examples=10)
settings.load_profile("suite")

# Most of these JVMs end before what their second compiler makes has paid for itself.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
AS_INSTALLED = str(Path(__file__).parent / "as_installed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`: only what needs no JVM and no server.

    `--engine`: what does the work in the end-to-end part.
    """
    parser.addoption(
        "--quick", action="store_true", help="only tests that need no JVM and no server"
    )
    parser.addoption(
        "--engine", choices=["local", "spark"], help="the engine of both programs, end to end"
    )


# A worker runs a whole file. At the end a long one would keep one worker busy, and the others idle.
LONG_FILES = (
    "test_yarn.py",
    "test_cluster.py",
    "test_both_engines.py",
    "test_meltano.py",
    "test_wheels.py",
    "test_mysql_drivers.py",
    "test_pipe_kills.py",
    "test_binlog_kills.py",
    "test_other_accounts.py",
    "test_iceberg_faults.py",
    "test_pages.py",
    "test_signals.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts long files first, and leaves out what `--quick` does not run."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)
    if not config.getoption("--quick"):
        return
    left_out = [item for item in items if _needs_more(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """What was imported and collected lives as long as the session: no collection of garbage looks
    at its million objects again, and there are few collections of the rest.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


def _needs_more(item: pytest.Item) -> bool:
    chosen = item.callspec.params.values() if hasattr(item, "callspec") else ()
    uses = SERVERS & {
        *getattr(item, "fixturenames", ()),
        *(each for each in chosen if isinstance(each, str)),
    }
    return (
        bool(uses) or "end_to_end" in item.path.parts or item.get_closest_marker("slow") is not None
    )


class NoServers:
    """A test that asks for a server by a name made on its way must be marked `slow`: `--quick`
    starts none.

    Registered by itself: the hooks of a folder's conftest are not called for fixtures of the whole
    session.
    """

    @staticmethod
    def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
        """Fail the test in place of starting a server."""
        if fixturedef.argname in SERVERS:
            pytest.fail(f"a test of --quick asks for {fixturedef.argname}: mark it slow")


def pytest_configure(config: pytest.Config) -> None:
    """Lets `kill` and `timeout` end a session as Ctrl-C does, fixtures and all.

    `--quick` tries few examples.
    """
    # Until everything is collected: what is imported is no garbage.
    gc.disable()
    if config.getoption("--quick"):
        settings.load_profile("quick")
        config.pluginmanager.register(NoServers())
    # The programs sync each file that they write: on a disk that takes a third of the suite's time.
    if memory := memory_disk():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    """Tells which stores the tests are served by."""
    return [described(), google_server.described(), azure_server.described()]


# Files that tests write by Spark are the only ones of their folder.
NO_MARKS = {"spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    """A secret that one test registers is no secret of the next: else a short word would be masked
    in its lines.
    """
    known = set(errors._secrets)
    yield
    errors._secrets.intersection_update(known)


@pytest.fixture(autouse=True)
def _drop_databases() -> Iterator[None]:
    """What a test has made is dropped with it: the databases of a whole suite would take 8 GB."""
    known = len(postgresql_server.NEW)
    yield
    for server, database in postgresql_server.NEW[known:]:
        server.drop(database)
    del postgresql_server.NEW[known:]


@pytest.fixture(autouse=True)
def _stop_watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database that a test leaves open is no longer watched: each watch would connect to its
    server every five seconds, for the rest of the suite.
    """
    started: list[ServerWatch] = []
    start = ServerWatch.start

    def start_watch(watch: ServerWatch) -> None:
        started.append(watch)
        start(watch)

    monkeypatch.setattr(ServerWatch, "start", start_watch)
    yield
    for watch in started:
        watch.stop()


@pytest.fixture(autouse=True)
def _forget_log_levels() -> Iterator[None]:
    """A program that one test runs in this process sets the levels of its loggers: the next test
    has its own.
    """
    known = _log_levels()
    yield
    for name, level in _log_levels().items():
        if level != (before := known.get(name, logging.NOTSET)):
            logging.getLogger(name).setLevel(before)


def _log_levels() -> dict[str | None, int]:
    loggers = [
        each
        for each in logging.root.manager.loggerDict.values()
        if isinstance(each, logging.Logger)
    ]
    return {None: logging.root.level} | {each.name: each.level for each in loggers}


@pytest.fixture(autouse=True)
def _forget_variables_of_a_session() -> Iterator[None]:
    """What a session of this process leaves is for no program of the next test: it would ask
    `spark-submit`.
    """
    yield
    _forget_session()


def _forget_session() -> None:
    for name in ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def _programs_as_installed(pytestconfig: pytest.Config) -> None:
    """What programs under test find before anything else; processes that share the tests do not."""
    if engine := pytestconfig.getoption("--engine"):
        os.environ["SUITE_ENGINE"] = engine
    # Spark's tasks in Python ask for pandas.
    if engine != "spark":
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [AS_INSTALLED, os.environ.get("PYTHONPATH", "")])
        )


@pytest.fixture
def with_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that this test starts find pandas, too."""
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(each for each in found if each != AS_INSTALLED)
    )


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A real PostgreSQL: `new_database()` gives an empty one with its `dsn`, `jdbc_url`, `user` and
    `password`.
    """
    with started("servers.postgresql") as facts:
        yield PostgreSQL(**facts)


@pytest.fixture(scope="session")
def older_postgresql() -> Iterator[PostgreSQL]:
    """The PostgreSQL of the system's packages; if it is not installed, its tests are skipped, and
    in CI they fail.
    """
    programs = postgresql_server.older()
    need(None if programs else "no other PostgreSQL on this machine: install postgresql")
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        Path(folder).chmod(0o755)  # the server may run as another account
        with postgresql_server.running(Path(folder) / "server", programs) as facts:
            yield PostgreSQL(**facts)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """A real MariaDB, used as `postgresql` is; if it is not installed, its tests are skipped, and
    in CI they fail.
    """
    need(mariadb_server.missing())
    with started("servers.mariadb") as facts:
        yield MariaDB(**facts)


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """A real MySQL, used as `postgresql` is; if it was not unpacked, its tests are skipped, and in
    CI they fail.
    """
    need(mysql_server.missing())
    with started("servers.mysql") as facts:
        yield MySQL(**facts)


@pytest.fixture(scope="session")
def ssh() -> Iterator[Ssh]:
    """A real OpenSSH server; where none is installed its tests are skipped, in CI they fail."""
    need(ssh_server.missing())
    with started("servers.ssh") as facts:
        yield Ssh(**facts)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A real S3 server.

    `new_bucket()` gives a URL, `storage_options` what a config needs for it.
    """
    with started(MODULES[chosen_server()]) as facts:
        yield S3(**facts)


@pytest.fixture
def deaf_server() -> Iterator[str]:
    """The URL of a server that hangs up on each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def google() -> Iterator[GoogleStore]:
    """A real server that speaks as Google's store does, used as `s3` is; if it is not built, its
    tests are skipped.
    """
    need(google_server.missing())
    with started("servers.google") as facts:
        yield GoogleStore(**facts)


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureStore]:
    """A real server that speaks as Azure's does, used as `s3` is; if it is not installed, its tests
    are skipped.
    """
    need(azure_server.missing())
    with started("servers.azure") as facts:
        yield AzureStore(**facts)


@pytest.fixture(params=["s3", "google", "azure"])
def store(request: pytest.FixtureRequest) -> S3 | GoogleStore | AzureStore:
    """Each of the three stores."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def moto() -> Iterator[S3]:
    """moto's S3 server in any case: it takes requests whose headers a proxy has changed on their
    way.
    """
    with started(MODULES["moto"]) as facts:
        yield S3(**facts)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser; where none is installed its tests are skipped, in CI they fail."""
    need(None if web.program() else "no browser: install chromium-headless-shell, or chromium")
    with web.opened() as opened:
        yield opened


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process.

    A handful of rows needs no adaptive planning and few partitions: programs under test have what
    users have, and a merge here takes a third less. They replace ours, as a program in this process
    would set ours again.
    """
    from singer_spark.engine import gateway, spark_settings
    from singer_spark.engine.session import SparkOptions, get_session

    small = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    with mock.patch.dict(spark_settings.BASE_CONF, small):
        session = get_session(SparkOptions(app_name="tests", master="local[2]", conf=NO_MARKS))
        _forget_session()
        yield session
        session.stop()
        gateway.close()
