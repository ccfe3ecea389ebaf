"""Drivers: fetched once, checked, then started from the cache without Ivy, Java or network."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.drivers import PINNED_SHA256, cache_folder, cached_jars, local_jars

ACME = "org.acme:acme-jdbc:1.0"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """Ivy settings of a repository in a folder, which holds one driver."""
    folder = tmp_path / "repository" / "org.acme" / "acme-jdbc" / "1.0"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "acme-jdbc-1.0.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    settings = tmp_path / "ivysettings.xml"
    pattern = tmp_path / "repository" / "[organisation]" / "[module]" / "[revision]" / "[artifact]-[revision].[ext]"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<filesystem name="here"><artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
    )
    return str(settings)


def test_a_driver_is_fetched_whole_with_its_checksum(empty_cache: Path, repository: str) -> None:
    (jar,) = cached_jars(ACME, ivy_settings=repository)
    assert Path(jar) == empty_cache / "org.acme" / "acme-jdbc-1.0.jar"
    recorded = Path(jar).with_suffix(".sha256").read_text().strip()
    assert recorded == hashlib.sha256(Path(jar).read_bytes()).hexdigest()
    assert sorted(each.suffix for each in Path(jar).parent.iterdir()) == [".jar", ".sha256"]


def test_a_cached_driver_needs_neither_ivy_nor_java(
    empty_cache: Path, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cached_jars(ACME, ivy_settings=repository)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    Path(repository).unlink()
    assert cached_jars(ACME, ivy_settings=repository) == first


def test_a_driver_that_changed_in_the_cache_is_refused(empty_cache: Path, repository: str) -> None:
    (jar,) = cached_jars(ACME, ivy_settings=repository)
    Path(jar).write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match="checksum differs"):
        cached_jars(ACME, ivy_settings=repository)


def test_a_built_in_driver_must_be_the_pinned_one(empty_cache: Path) -> None:
    folder = empty_cache / "org.postgresql"
    folder.mkdir(parents=True)
    package = known_dialects()["postgresql"].driver_package
    assert package in PINNED_SHA256
    version = package.rpartition(":")[2]
    (folder / f"postgresql-{version}.jar").write_bytes(b"malware")
    (folder / f"postgresql-{version}.sha256").write_text(hashlib.sha256(b"malware").hexdigest())
    with pytest.raises(ConfigurationError, match="checksum differs"):
        cached_jars(package)


def test_every_built_in_driver_is_pinned() -> None:
    packages = {dialect.driver_package for dialect in known_dialects().values()} - {None}
    assert packages == set(PINNED_SHA256)


def test_a_driver_that_can_t_be_had_is_one_clear_line_with_a_way_out(empty_cache: Path, repository: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        cached_jars("org.acme:acme-jdbc:9.9", ivy_settings=repository)
    message = str(caught.value)
    assert "org.acme:acme-jdbc:9.9 is not in the cache and can't be fetched" in message
    assert "not found" in message
    assert "driver_jars" in message
    assert "\n" not in message
    assert not list(empty_cache.rglob("*.jar"))


@pytest.mark.parametrize("package", ["postgresql", "a:b", "a:b:c:d", "a:b:../../etc", "", "a b:c:1"])
def test_malformed_coordinates_are_refused(empty_cache: Path, package: str) -> None:
    with pytest.raises(ConfigurationError, match="group:artifact:version"):
        cached_jars(package)


def test_all_missing_local_jars_are_named(tmp_path: Path) -> None:
    there = tmp_path / "there.jar"
    there.write_bytes(b"")
    assert local_jars([str(there)]) == (str(there),)
    with pytest.raises(ConfigurationError, match=r"a\.jar, .*b\.jar"):
        local_jars([str(there), str(tmp_path / "a.jar"), str(tmp_path / "b.jar")])


def test_the_command_names_what_it_knows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tap_spark_jdbc.drivers", "derby", "oracel"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=60, check=False)
    assert done.returncode == 1
    assert "unknown database 'oracel'; known are postgresql, sqlite, derby" in done.stderr
    assert done.stdout == ""
