"""JDBC driver jars: resolved once into the user's cache, then started from there without a network.

The Ivy that ships with PySpark resolves them, so repositories, mirrors and proxies are Ivy's to know.
`python -m tap_spark_jdbc.drivers postgresql sqlite` fills the cache beforehand.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark import java
from singer_spark.errors import ConfigurationError, run_command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

RESOLVE_SECONDS = 180
WITHOUT_NETWORK = "on a machine without network give its jar in `driver_jars`"
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+")

# What the built-in coordinates must hash to, whatever repository or mirror serves them.
PINNED_SHA256 = {
    "org.postgresql:postgresql:42.7.8": "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    "org.xerial:sqlite-jdbc:3.50.3.0": "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
}


def cached_jars(packages: str, *, ivy_settings: str | None = None) -> tuple[str, ...]:
    """Local paths of the jars of `group:artifact:version[,…]`, fetched where the cache lacks them.

    Args:
        packages: Maven coordinates, with commas between them.
        ivy_settings: Path of an Ivy settings file that names the repositories; Ivy's default else.

    Raises:
        ConfigurationError: malformed coordinates, a jar that can't be had, or one that is not what was pinned.
    """
    return tuple(str(_cached_jar(package.strip(), ivy_settings)) for package in packages.split(","))


def local_jars(paths: Sequence[str]) -> tuple[str, ...]:
    """The jars that the user has put on this machine, by absolute path.

    Raises:
        ConfigurationError: some are not there; all of them are named.
    """
    jars = [Path(path).expanduser().absolute() for path in paths]
    missing = [str(jar) for jar in jars if not jar.is_file()]
    if missing:
        raise ConfigurationError(f"setting driver_jars: no such file: {', '.join(missing)}")
    return tuple(str(jar) for jar in jars)


def cache_folder() -> Path:
    """Where drivers are kept, in the folder of all that is made once."""
    return java.cache_folder() / "drivers"


def _cached_jar(package: str, ivy_settings: str | None) -> Path:
    if not _COORDINATES.fullmatch(package):
        raise ConfigurationError(
            f"setting driver_package: {package!r} is not group:artifact:version, as in org.postgresql:postgresql:42.7.8"
        )
    group, artifact, version = package.split(":")
    jar = cache_folder() / group / f"{artifact}-{version}.jar"
    if not jar.is_file() or not jar.with_suffix(".sha256").is_file():
        _fetch(package, jar, ivy_settings)
    expected = PINNED_SHA256.get(package) or jar.with_suffix(".sha256").read_text("ascii").strip()
    if _sha256(jar) != expected:
        raise ConfigurationError(
            f"the cached driver {jar} is not the {package} that it should be (checksum differs); remove the file"
        )
    return jar


def _fetch(package: str, jar: Path, ivy_settings: str | None) -> None:
    """Puts the jar and its checksum into the cache, whole or not at all."""
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".fetch-") as folder:
            fetched = _resolve(package, Path(folder), ivy_settings)
            checksum = _sha256(fetched)
            if PINNED_SHA256.get(package, checksum) != checksum:
                raise ConfigurationError(
                    f"the repository's {package} is not the pinned one (SHA-256 {checksum}); it was not kept"
                )
            fetched.with_suffix(".sha256").write_text(f"{checksum}\n", "ascii")
            fetched.with_suffix(".sha256").replace(jar.with_suffix(".sha256"))
            fetched.replace(jar)
    except OSError as error:
        raise ConfigurationError(
            f"the driver {package} can't be kept in {jar.parent}: {error.strerror or error}; {WITHOUT_NETWORK}"
        ) from error


def _resolve(package: str, folder: Path, ivy_settings: str | None) -> Path:
    """Has Ivy bring the jar into a folder."""
    command = [str(java.find_java_home() / "bin" / "java"), "-jar", str(_ivy_jar(package))]
    command += ["-settings", ivy_settings] if ivy_settings else []
    command += ["-cache", str(folder / "ivy"), "-notransitive", "-types", "jar", "bundle"]
    command += ["-dependency", *package.split(":"), "-retrieve", str(folder / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=RESOLVE_SECONDS, check=False
        )
        output, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        output, code = f"no answer within {RESOLVE_SECONDS} seconds", 1
    jars = list(folder.glob("*.jar"))
    if code or not jars:
        raise ConfigurationError(
            f"the driver {package} is not in the cache and can't be fetched ({_reason(output)}); {WITHOUT_NETWORK}"
        )
    return jars[0]


def _ivy_jar(package: str) -> Path:
    """Found beside PySpark without importing it."""
    pyspark = find_spec("pyspark")
    folders = (pyspark.submodule_search_locations or []) if pyspark else []
    for folder in folders:
        for jar in sorted((Path(folder) / "jars").glob("ivy-*.jar")):
            return jar
    raise ConfigurationError(
        f"the driver {package} is not in the cache and this PySpark carries no Ivy to fetch it; {WITHOUT_NETWORK}"
    )


def _reason(output: str) -> str:
    """The telling line of Ivy's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # The first of these that Ivy says is the cause; what follows them are consequences.
    for word in ("Exception", "not found", "unresolved dependency", "no answer"):
        for line in lines:
            if word in line:
                return line.strip(":\t ")[:200]
    return lines[-1][:200] if lines else "Ivy said nothing"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _warm_cache() -> int:
    from tap_spark_jdbc.dialects import known_dialects

    known = known_dialects()
    for name in sys.argv[1:]:
        if name not in known:
            raise ConfigurationError(f"unknown database {name!r}; known are {', '.join(known)}")
        package = known[name].driver_package
        jars = cached_jars(package) if package else ()
        sys.stderr.write(f"{name}: {', '.join(jars) or 'its driver ships with Spark'}\n")
    return 0


if __name__ == "__main__":
    run_command_line(_warm_cache, "tap-spark-jdbc")
