"""Archives of the classes that Spark loads at each start, so that the JVM maps them instead of
reading them each time.

There are two, because a JVM keeps most of its archive in memory: one with the classes of a session,
and one for a JVM that only answers queries and reads rows. They use the JDK's class-data sharing
(JEP 350). `python -m singer_spark.engine.class_archive` builds them, as `make setup` does. If one
is missing, or was made for another Java or Spark, the first successful run of the tap has it built
in the background. Without it, a start is slower but otherwise the same.
`SPARK_LAKE_CLASS_ARCHIVE=off` disables them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from singer_spark.engine.command import spark_home
from singer_spark.engine.java import cache_folder, find_java_home, java_stamp
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

VARIABLE = "SPARK_LAKE_CLASS_ARCHIVE"
OFF = "off"
BUILD_SECONDS = 300
FORMAT = "6"
# At the address that it was made for: otherwise the JVM rewrites its pointers, which turns 120 MB
# of it into private memory.
IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
NICENESS = 19
# What a JVM does: the first argument of the rehearsal.
SESSION, ROWS = "session", "rows"


def java_options(java_home: Path, does: str = SESSION) -> list[str]:
    """The JVM's options for this Java: use the archive, or write the one being built."""
    setting = os.environ.get(VARIABLE)
    if setting and setting != OFF:
        return [f"-XX:ArchiveClassesAtExit={setting}", *QUIET]
    archive = archive_path(java_home, does)
    if setting == OFF or not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *QUIET, *IN_PLACE]


def archive_path(java_home: Path, does: str = SESSION) -> Path:
    """The path of the archive for this Java and this Spark, whether it exists or not."""
    jars = spark_home() / "jars"
    spark = [version("pyspark"), str(jars), str(jars.stat().st_mtime_ns)]
    facts = [FORMAT, *java_stamp(java_home), *spark]
    return cache_folder() / "classes" / f"{_location()}-{_digest(facts)}-{does}.jsa"


def build() -> list[Path]:
    """Build the archives from JVMs that do what those of the programs do; existing ones are kept.

    This environment's archives for another Java or Spark are removed.

    Raises:
        ConfigurationError: a JVM failed, or this Java wrote no archive.
    """
    archives = _archives()
    for does, archive in archives.items():
        if not archive.exists():
            _build(does, archive)
    for each in archive.parent.glob(f"{_location()}-*.jsa"):
        if each not in archives.values():
            each.unlink(missing_ok=True)
    return list(archives.values())


def _archives() -> dict[str, Path]:
    java_home = find_java_home()
    return {does: archive_path(java_home, does) for does in (ROWS, SESSION)}


def _build(does: str, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent.absolute(), prefix=".draft-") as draft:
        written = Path(draft) / archive.name
        try:
            done = subprocess.run(
                [sys.executable, "-m", "singer_spark.engine.class_rehearsal", does, draft],
                # Derby and Spark leave files in their working directory, which should not be the
                # user's.
                cwd=draft,
                env={**os.environ, VARIABLE: str(written)},
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfigurationError(
                RunCode.SPARK_NOT_STARTED,
                f"the class archive was not written within {BUILD_SECONDS} seconds",
            ) from None
        if done.returncode or not written.exists():
            raise ConfigurationError(
                RunCode.SPARK_NOT_STARTED,
                f"the class archive was not written: {done.stderr.strip()[-500:]}",
            )
        written.replace(archive)


def build_in_background() -> bool:
    """Build the archives in a detached process.

    Returns False if they exist already, can't be made, or are disabled.
    """
    if os.environ.get(VARIABLE) or all(
        each.exists() or _failed(each).exists() for each in _archives().values()
    ):
        return False
    subprocess.Popen(
        [sys.executable, "-m", "singer_spark.engine.class_archive", "alone"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return True


def build_alone() -> None:
    """Build them at low priority, unless another process is building them."""
    os.nice(NICENESS)
    folder = cache_folder() / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            build()
        except ConfigurationError:
            # This Java would fail to write it the next time, too.
            for archive in _archives().values():
                if not archive.exists():
                    _failed(archive).touch()
            raise


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _location() -> str:
    """An identifier of this environment among all that share the cache."""
    return _digest([str(Path(sys.prefix).resolve())])[:8]


def _digest(facts: list[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    if sys.argv[1:] == ["alone"]:
        build_alone()
    else:
        sys.stderr.writelines(f"class archive: {each}\n" for each in build())
