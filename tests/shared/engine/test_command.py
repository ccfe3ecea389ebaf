"""How the JVM is started: as `spark-submit` would, without asking it, and from an archive that
fits.
"""

from __future__ import annotations

import os
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from singer_spark.engine import class_archive, class_rehearsal
from singer_spark.engine.class_archive import (
    ROWS,
    SESSION,
    archive_path,
    build_in_background,
    java_options,
)
from singer_spark.engine.command import MAIN_CLASS, _spark_submit, jvm_command, spark_home
from singer_spark.engine.java import find_java_home
from singer_spark.engine.session import command_for, get_gateway
from singer_spark.engine.spark_settings import SparkOptions
from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.app.name": "a name with blanks",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.shuffle.partitions": "3",
}
OPTIONS = """-Duser.timezone=UTC -Da="b c" -Dd='e "f"' -XX:+UseSerialGC"""


@pytest.fixture(autouse=True)
def _as_in_a_new_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the suite's own options for short-lived JVMs."""
    for name in [each for each in os.environ if each.startswith("SPARK_")]:
        monkeypatch.delenv(name)


def at_once(
    conf: dict[str, str] = CONF, options: str = OPTIONS, jars: tuple[str, ...] = ()
) -> list[str]:
    command = jvm_command(find_java_home(), conf, options, jars)
    assert command.words[0] == str(find_java_home() / "bin" / "java")
    assert command.jars == jars
    return command.words


def is_left_to_spark_submit(conf: dict[str, str] = CONF, options: str = OPTIONS) -> bool:
    command = jvm_command(find_java_home(), conf, options, ("/a/driver.jar",))
    return command.jars == () and command.words == _spark_submit(conf, options, ("/a/driver.jar",))


def of_the_launcher(command: list[str]) -> list[str]:
    """What Spark's launcher makes of a command for `spark-submit`."""
    java = [
        find_java_home() / "bin" / "java",
        "-cp",
        spark_home() / "jars" / "*",
        "org.apache.spark.launcher.Main",
    ]
    environment = {**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}
    done = subprocess.run(
        [*java, MAIN_CLASS, *command[1:]], env=environment, capture_output=True, check=True
    )
    return [word.decode() for word in done.stdout.partition(b"\0\n")[2].split(b"\0")[:-1]]


def settings(words: list[str]) -> set[str]:
    """The settings among the arguments of the main class, except the JVM's own, which are in effect
    by then.
    """
    pairs = {following for word, following in pairwise(words) if word == "--conf"}
    return {
        pair
        for pair in pairs
        if not pair.startswith(("spark.driver.memory=", "spark.driver.extraJavaOptions="))
    }


def test_jvm_command_matches_spark_submit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JVM gets the command of spark-submit, except for the vector module."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -Dg='h i'")
    ours, theirs = at_once(), of_the_launcher(_spark_submit(CONF, OPTIONS, ()))
    theirs.remove("--add-modules=jdk.incubator.vector")
    place = theirs.index(MAIN_CLASS)
    assert ours[: place + 1] == theirs[: place + 1]
    # The launcher knows the master and the application's name by flags of their own.
    flags = {"--master": "spark.master", "--name": "spark.app.name"}
    named = {f"{flags[word]}={theirs[n + 1]}" for n, word in enumerate(theirs) if word in flags}
    assert settings(ours[place:]) == settings(theirs[place:]) | named
    assert ours[-1] == theirs[-1] == "pyspark-shell"


def test_jvm_command_line_has_no_secret() -> None:
    """Secrets are passed unchanged in files that only their owner can read."""
    odd = "p\\w: 'é' \"=#😀"
    conf = {**CONF, "spark.authenticate.secret": "hidden-1", "spark.ssl.keyPassword": odd}
    options = (
        OPTIONS + " -Djavax.net.ssl.trustStorePassword=hidden-2 '-Dapi.token=" + 'a "b\\ c' + "'"
    )
    ours, by_launcher = at_once(conf, options), _spark_submit(conf, options, ())
    for command in (ours, by_launcher):
        assert not [word for word in command if "hidden" in word or odd in word or 'a "b' in word]
        path = Path(command[command.index("--properties-file") + 1])
        assert path.stat().st_mode & 0o077 == 0
    assert "--load-spark-defaults" in by_launcher
    assert "--load-spark-defaults" not in _spark_submit(CONF, OPTIONS, ())
    read = (
        "var p = new java.util.Properties(); p.load(new "
        'java.io.FileReader(System.getProperty("f")));'
    )
    read += (
        'for (var n : new String[]{"spark.authenticate.secret", "spark.ssl.keyPassword"}) '
        "show(p.getProperty(n));"
    )
    read += (
        'for (var n : new String[]{"javax.net.ssl.trustStorePassword", "api.token"}) '
        "show(System.getProperty(n));"
    )
    show = (
        "static void show(String s) { "
        'System.out.println(java.util.HexFormat.of().formatHex(s.getBytes("UTF-8"))); }'
    )
    source = path.with_name("Told.java")
    source.write_text(
        "class Told { "
        + show.replace(") {", ") throws Exception {")
        + " public static void main(String[] a) throws Exception {"
        + read
        + "}}"
    )
    java = [
        str(find_java_home() / "bin" / "java"),
        f"-Df={path}",
        *(word for word in ours if word.startswith("@")),
    ]
    done = subprocess.run([*java, str(source)], capture_output=True, text=True, check=True)
    reported = [bytes.fromhex(line).decode() for line in done.stdout.split()]
    assert reported == ["hidden-1", odd, "hidden-2", 'a "b\\ c']


def test_drivers_follow_spark_on_class_path() -> None:
    ours, bare = at_once(jars=("/a/driver.jar", "/b/other.jar")), at_once()
    assert ours[2] == f"{bare[2]}:/a/driver.jar:/b/other.jar"
    assert not [word for word in ours if word.startswith("spark.jars")]
    assert "spark.jars=/a/driver.jar" in _spark_submit(CONF, OPTIONS, ("/a/driver.jar",))


@pytest.mark.parametrize(
    ("variable", "conf"),
    [
        ("SPARK_CONF_DIR", {}),
        ("SPARK_DIST_CLASSPATH", {}),
        ("HADOOP_CONF_DIR", {}),
        ("SPARK_OF_A_LATER_VERSION", {}),
        (None, {"spark.driver.extraClassPath": "/x"}),
        (None, {"spark.jars.packages": "a:b:1"}),
        (None, {"spark.master": "spark://host:7077"}),
    ],
)
def test_spark_submit_handles_its_own_settings(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, conf: dict[str, str]
) -> None:
    if variable:
        monkeypatch.setenv(variable, "/somewhere")
    assert is_left_to_spark_submit({**CONF, **conf})


def test_memory_limit_in_java_options_reaches_spark() -> None:
    """A memory limit among the Java options is left for Spark itself to refuse."""
    assert is_left_to_spark_submit(options="-Xmx2g")
    assert is_left_to_spark_submit(options="-Da='open")


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Java of its own, and a Spark with one jar; no archive is there yet."""
    home, spark = tmp_path / "jdk", tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").write_text("#!/bin/sh\n")
    (home / "bin/java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (spark / "jars").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(class_archive, "spark_home", lambda: spark)
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    return home


def make_archive(java: Path, does: str = SESSION) -> Path:
    archive = archive_path(java, does)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_text("classes")
    return archive


def test_java_or_spark_change_invalidates_archive(java: Path) -> None:
    assert java_options(java) == []
    archive = make_archive(java)
    assert f"-XX:SharedArchiveFile={archive}" in java_options(java)
    os.utime(java / "bin/java", (1, 1))
    assert java_options(java) == []
    archive = make_archive(java)
    (class_archive.spark_home() / "jars/more.jar").touch()
    os.utime(class_archive.spark_home() / "jars", (2, 2))
    assert java_options(java) == []


def test_stale_archive_is_rebuilt_and_removed(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that no longer fits is rebuilt, and the old one is removed."""
    stale = make_archive(java)
    os.utime(java / "bin/java", (1, 1))
    begun: list[list[str]] = []

    def rehearsed(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        begun.append(command)
        # Derby and Spark leave files where they run: never in the user's folder.
        assert Path(options["cwd"]).parent == archive_path(java).parent
        assert Path(options["cwd"]).is_absolute()
        Path(options["env"][class_archive.VARIABLE]).write_text("new classes")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", rehearsed)
    built = class_archive.build()
    assert built == [archive_path(java, each) for each in (ROWS, SESSION)]
    assert [each.read_text() for each in (*built, stale) if each.exists()] == ["new classes"] * 2
    assert class_archive.build() == built
    assert [each[3] for each in begun] == [ROWS, SESSION]


def test_sessionless_jvm_maps_no_session_classes(java: Path) -> None:
    """Half of the archive, most of which stays in memory, is needed only by a session."""
    for each in (ROWS, SESSION):
        archive = make_archive(java, each)
        words = command_for(SparkOptions("a", only_jvm=each == ROWS)).words
        assert [word for word in words if "SharedArchiveFile" in word] == [
            f"-XX:SharedArchiveFile={archive}"
        ]


def test_missing_archive_is_built_once(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    assert build_in_background()
    assert begun[0][1:] == ["-m", "singer_spark.engine.class_archive", "alone"]
    make_archive(java)
    assert build_in_background()
    make_archive(java, ROWS)
    assert not build_in_background()
    os.utime(java / "bin/java", (1, 1))
    assert build_in_background()
    monkeypatch.setenv(class_archive.VARIABLE, "off")
    assert not build_in_background()
    assert len(begun) == 3


def test_single_compiler_jvm_has_enough_code_cache() -> None:
    """A JVM with one compiler has enough code cache for a run of many tables."""
    options = SparkOptions("a", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    command = command_for(options).words
    java = [*command[: command.index(MAIN_CLASS)], "-XX:+PrintFlagsFinal", "-version"]
    flags = subprocess.run(java, capture_output=True, text=True, check=True).stdout
    (size,) = re.findall(r" ReservedCodeCacheSize += (\d+)", flags)
    assert int(size) == 240 << 20


def test_drivers_log_nothing_at_any_level() -> None:
    words = command_for(SparkOptions(app_name="tap", log_level="DEBUG")).words
    path = next(word for word in words if word.startswith("-Dlog4j2.configurationFile=")).partition(
        "file://"
    )[2]
    logging = Path(path).read_text()
    assert "rootLogger.level = debug" in logging
    assert re.search(r"logger\.(\w+)\.name = org\.postgresql\nlogger\.\1\.level = off\n", logging)


@pytest.mark.slow
def test_archive_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real JVM writes the archive at its end, whatever it says meanwhile, and the next one is
    started from it. An archive that is there already is kept.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    kept = make_archive(find_java_home(), SESSION)
    rows, session = class_archive.build()
    assert rows.is_relative_to(tmp_path)
    assert rows.stat().st_size > 50 << 20
    assert session.read_text() == kept.read_text() == "classes"
    assert any(str(rows) in option for option in java_options(find_java_home(), ROWS))


def test_session_rehearsal_reads_and_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a session does for its archive works, here without the archive."""
    session = SimpleNamespace(read=spark.read, stop=lambda: None)
    monkeypatch.setattr(class_rehearsal, "get_session", lambda _: session)
    system = get_gateway(class_rehearsal.OPTIONS).jvm.java.lang.System
    system.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    class_rehearsal._in_session("jdbc:derby:memory:rehearsal;create=true", tmp_path)
    rows = pq.read_table(tmp_path / "parquet")
    assert rows.column_names[:5] == ["A", "B", "C", "D", "at"]
    assert "SYSTABLES" in rows["B"].to_pylist()


def test_slow_archive_build_is_tried_once(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that does not end is tried once, not again by each run."""
    begun: list[list[str]] = []

    def stuck(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        begun.append(command)
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", stuck)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with pytest.raises(ConfigurationError, match=r"RUN-011 .*300"):
        class_archive.build_alone()
    assert len(begun) == 1
    assert not build_in_background()
