"""An archive of the classes that Spark loads at each start, so that the JVM maps them instead of reading them anew.

It uses the JDK's class-data sharing (JEP 350). `python -m singer_spark.jvm.class_archive` builds it, as `make setup`
does. If it is missing, or was made for another Java or Spark, the first successful run of the tap has it built in the
background. A start without it is slower and otherwise the same. `SPARK_LAKE_CLASS_ARCHIVE=off` disables it.
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

from singer_spark.errors import ConfigurationError
from singer_spark.jvm.command import spark_home
from singer_spark.jvm.java import cache_folder, find_java_home, java_stamp

VARIABLE = "SPARK_LAKE_CLASS_ARCHIVE"
OFF = "off"
BUILD_SECONDS = 300
FORMAT = "5"
# At the address that it was made for: else the JVM rewrites its pointers, which makes 120 MB memory of its own.
IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
NICENESS = 19


def java_options(java_home: Path) -> list[str]:
    """The JVM's options for this Java: use the existing archive, or write the one that is being built."""
    setting = os.environ.get(VARIABLE)
    if setting and setting != OFF:
        return [f"-XX:ArchiveClassesAtExit={setting}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    archive = archive_path(java_home)
    if setting == OFF or not archive.exists():
        return []
    shared = [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return [*shared, *IN_PLACE]


def archive_path(java_home: Path) -> Path:
    """The path of the archive for this Java and this Spark, whether it exists or not."""
    jars = spark_home() / "jars"
    facts = [FORMAT, *java_stamp(java_home), version("pyspark"), str(jars), str(jars.stat().st_mtime_ns)]
    return cache_folder() / "classes" / f"{_place()}-{_digest(facts)}.jsa"


def build() -> Path:
    """Build the archive from a session that does what the programs do; an existing one is kept.

    This environment's archives for another Java or Spark are removed.

    Raises:
        ConfigurationError: the session failed, or this Java wrote no archive.
    """
    archive = archive_path(find_java_home())
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent.absolute(), prefix=".draft-") as draft:
        written = Path(draft) / archive.name
        done = subprocess.run(
            [sys.executable, "-m", "singer_spark.spark.class_rehearsal", draft],
            # Derby and Spark leave files in their working directory, which should not be the user's.
            cwd=draft,
            env={**os.environ, VARIABLE: str(written)},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if done.returncode or not written.exists():
            raise ConfigurationError(f"the class archive was not written: {done.stderr.strip()[-500:]}")
        for stale in archive.parent.glob(f"{_place()}-*.jsa"):
            stale.unlink(missing_ok=True)
        written.replace(archive)
    return archive


def build_in_background() -> bool:
    """Build the archive in a detached process; False if it exists already, can't be made, or is disabled."""
    archive = archive_path(find_java_home())
    if os.environ.get(VARIABLE) or archive.exists() or _failed(archive).exists():
        return False
    subprocess.Popen(
        [sys.executable, "-m", "singer_spark.jvm.class_archive", "alone"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return True


def build_alone() -> None:
    """Build it at low priority, unless another process is building it."""
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
            _failed(archive_path(find_java_home())).touch()
            raise


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _place() -> str:
    """An identifier of this environment among all that share the cache."""
    return _digest([str(Path(sys.prefix).resolve())])[:8]


def _digest(facts: list[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    if sys.argv[1:] == ["alone"]:
        build_alone()
    else:
        sys.stderr.write(f"class archive: {build()}\n")
