"""Jars of Maven packages: fetched once, checked, then started from the cache without Ivy, Java or
network.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.source.drivers import JarCache

ACME, EXTRA = "org.acme:acme-jdbc:1.0", "org.acme.more:extra:2.0"
CACHE = JarCache("drivers", "the driver", "give its jar in `driver_jars`")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return CACHE.path


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """Ivy settings of a repository in a folder, which holds two packages."""
    for package in (ACME, EXTRA):
        group, artifact, version = package.split(":")
        folder = tmp_path / "repository" / group / artifact / version
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / f"{artifact}-{version}.jar", "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nName: {artifact}\n")
    settings = tmp_path / "ivysettings.xml"
    pattern = (
        tmp_path
        / "repository"
        / "[organisation]"
        / "[module]"
        / "[revision]"
        / "[artifact]-[revision].[ext]"
    )
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem '
        f'name="here"><artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
    )
    return str(settings)


def test_jars_are_fetched_together_with_checksums(empty_cache: Path, repository: str) -> None:
    jars = [Path(jar) for jar in CACHE.jars([ACME, EXTRA], ivy_settings=repository)]
    assert jars == [
        empty_cache / "org.acme" / "acme-jdbc-1.0.jar",
        empty_cache / "org.acme.more" / "extra-2.0.jar",
    ]
    for jar in jars:
        recorded = jar.with_suffix(".sha256").read_text().strip()
        assert recorded == hashlib.sha256(jar.read_bytes()).hexdigest()
        assert sorted(each.suffix for each in jar.parent.iterdir()) == [".jar", ".sha256"]
    assert sorted(each.name for each in empty_cache.iterdir()) == ["org.acme", "org.acme.more"]


@pytest.mark.slow
def test_cached_jars_need_neither_ivy_nor_java(
    empty_cache: Path, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CACHE.jars([ACME], ivy_settings=repository)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    Path(repository).unlink()
    assert CACHE.jars([ACME], ivy_settings=repository) == first


@pytest.mark.slow
def test_changed_cached_jar_is_refused(empty_cache: Path, repository: str) -> None:
    (jar,) = CACHE.jars([ACME], ivy_settings=repository)
    Path(jar).write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match="RUN-023"):
        CACHE.jars([ACME], ivy_settings=repository)


def test_repository_with_another_jar_is_refused(empty_cache: Path, repository: str) -> None:
    """A repository that serves a jar other than the pinned one is refused."""
    cache = replace(CACHE, pinned={EXTRA: "0" * 64})
    with pytest.raises(ConfigurationError, match=r"RUN-023 .*extra:2\.0"):
        cache.jars([EXTRA], ivy_settings=repository)
    assert not list(empty_cache.rglob("extra*.jar"))


@pytest.mark.slow
def test_unavailable_package_is_one_clear_line(empty_cache: Path, repository: str) -> None:
    """The error offers `driver_jars` as an alternative."""
    with pytest.raises(ConfigurationError) as caught:
        CACHE.jars(["org.acme:acme-jdbc:9.9", ACME], ivy_settings=repository)
    message = str(caught.value)
    assert message.startswith("RUN-022 the driver org.acme:acme-jdbc:9.9 and 1 more ")
    assert "not found: org.acme#acme-jdbc;9.9" in message
    assert "driver_jars" in message
    assert "\n" not in message
    assert not list(empty_cache.rglob("*.jar"))
