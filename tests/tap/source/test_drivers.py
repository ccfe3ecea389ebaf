"""Drivers: the built-in ones are pinned, the user's own are named by coordinates or by path."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from singer_spark.engine import class_archive
from singer_spark.errors import ConfigurationError, SourceError
from tap.opened import source_of
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.source.drivers import CACHE, PINNED_SHA256, cached_jars, local_jars
from tap_spark_jdbc.source.remote_connection import RemoteConnection


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return CACHE.path


def test_built_in_driver_must_match_pinned_checksum(empty_cache: Path) -> None:
    folder = empty_cache / "org.postgresql"
    folder.mkdir(parents=True)
    package = known_dialects()["postgresql"].driver_package
    assert package in PINNED_SHA256
    version = package.rpartition(":")[2]
    (folder / f"postgresql-{version}.jar").write_bytes(b"malware")
    (folder / f"postgresql-{version}.sha256").write_text(hashlib.sha256(b"malware").hexdigest())
    with pytest.raises(ConfigurationError, match="RUN-023"):
        cached_jars(package)


def test_every_built_in_driver_is_pinned() -> None:
    packages = {dialect.driver_package for dialect in known_dialects().values()} - {None}
    assert packages == set(PINNED_SHA256)


@pytest.mark.parametrize(
    "package", ["postgresql", "a:b", "a:b:c:d", "a:b:../../etc", "", "a b:c:1"]
)
def test_malformed_coordinates_are_refused(empty_cache: Path, package: str) -> None:
    with pytest.raises(ConfigurationError, match="RUN-004"):
        cached_jars(package)


def test_all_missing_local_jars_are_named(tmp_path: Path) -> None:
    there = tmp_path / "there.jar"
    there.write_bytes(b"")
    assert local_jars([str(there)]) == (str(there),)
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*b\.jar"):
        local_jars([str(there), str(tmp_path / "a.jar"), str(tmp_path / "b.jar")])


def test_spark_connect_has_no_driver_access() -> None:
    """Over Spark Connect neither driver metadata nor session statements are available."""
    source = source_of({"jdbc_url": "jdbc:sqlite:shop.db"})
    connection = RemoteConnection(cast("Any", None), source)
    with pytest.raises(ConfigurationError, match=r"TAP-042 .*spark\.remote"):
        connection.metadata("getTables", None)
    with pytest.raises(SourceError, match="TAP-042"):
        connection.execute("SET SCHEMA shop")


def test_command_lists_known_databases(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tap_spark_jdbc.source.drivers", "derby", "oracel"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ}, timeout=60, check=False
    )
    assert done.returncode == 1
    assert f"unknown database 'oracel'; known are {', '.join(known_dialects())}" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_offline_machine_reads_with_own_jar(sqlite, tmp_path, monkeypatch) -> None:
    (jar,) = cached_jars(str(known_dialects()["sqlite"].driver_package))
    # An empty cache, and no repository to fill it from: the port is closed.
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers>'
        '<ibiblio name="none" m2compatible="true" root="http://127.0.0.1:9/"/>'
        "</resolvers></ivysettings>"
    )
    spark = {"master": "local[2]", "conf": {"spark.jars.ivySettings": str(settings)}}
    tap, _ = sqlite(
        "create table t (id integer primary key); insert into t values (7)", spark=spark
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Else the first run that succeeds begins to fill that cache.
    monkeypatch.setenv(class_archive.VARIABLE, class_archive.OFF)

    refused = tap.run()
    assert "the driver org.xerial:sqlite-jdbc:" in refused.failed()
    assert "give its jar in `driver_jars`" in refused.failed()
    assert refused.output == b""

    tap.config["driver_jars"] = [jar]
    sent = tap.run().succeeded()
    assert sent.values("t", "id") == {7: 1}
    assert not [path for path in CACHE.path.rglob("*.jar")]


def test_cached_driver_starts_without_ivy(empty_cache: Path, monkeypatch) -> None:
    folder = empty_cache / "com.acme"
    folder.mkdir(parents=True)
    (folder / "jdbc-1.0.jar").write_bytes(b"a driver")
    (folder / "jdbc-1.0.sha256").write_text(hashlib.sha256(b"a driver").hexdigest())
    # Nothing could run Ivy.
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert cached_jars("com.acme:jdbc:1.0") == (str(folder / "jdbc-1.0.jar"),)
