"""JDBC driver jars: pinned ones of known databases, and the user's own by coordinates or by path.

A jar of a Maven package is fetched once into the user's cache, verified, and used from there
without a network. The Ivy that ships with PySpark fetches it by its own coordinates and without
dependencies: all jars that are needed are listed.

`python -m tap_spark_jdbc.source.drivers postgresql sqlite` fills the cache beforehand.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from singer_spark.engine import java
from singer_spark.engine.command import spark_home
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, run_command_line
from tap_spark_jdbc.error_codes import TapCode

RESOLVE_SECONDS = 180
COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+")
# By default, Ivy would needlessly read the package's dependencies, and those of its parents.
SETTINGS = """\
<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"/>
</resolvers></ivysettings>
"""
PINNED_SHA256 = {
    "org.mariadb.jdbc:mariadb-java-client:3.5.6": (
        "a129703efd7b0f334564d46753de999f09b3a361489a2eb647e6020390981cc9"
    ),
    "org.postgresql:postgresql:42.7.8": (
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"
    ),
    "org.duckdb:duckdb_jdbc:2.0.0.1": (
        "6cb8b0e0fc51b2e45aead2d2c1e1fd09dd10267db2966e69aaab0de67319f826"
    ),
    "com.h2database:h2:2.5.252": "90b11dc413da82070ef15fc943282c1408e6ffd34fa68998335fea8603b5ff20",
    "com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11": (
        "5fbc0a70fe4d1d563d431a41b23f493d68807571f0bb49db0bb1737e83e9161f"
    ),
    "com.oracle.database.jdbc:ojdbc11:23.26.4.0.0": (
        "df977e9291499cd4ceee7d577462c285987dd2ad0216637c0865eb98956a9e6e"
    ),
    "com.ibm.db2:jcc:12.1.5.0": "04150111a29370247d162c3f05b8e938bf1314f19a63ad9a5302d88dd478e8e8",
    "net.snowflake:snowflake-jdbc:4.4.1": (
        "cb225d78ac10336669797dfef8588cffb7e3dae689f14120935831b1f6ba2709"
    ),
    "org.xerial:sqlite-jdbc:3.50.3.0": (
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08"
    ),
}


@dataclass(frozen=True)
class JarCache:
    """A folder of jars in the user's cache.

    Attributes:
        folder: Its name there.
        kind: How messages call its jars: `the driver`.
        way_out: Advice for a machine without network.
        pinned: SHA-256 of packages, whatever repository or mirror serves them.
    """

    folder: str
    kind: str
    way_out: str
    pinned: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The path of the folder in the user's cache."""
        return java.cache_folder() / self.folder

    def jars(self, packages: Sequence[str], *, ivy_settings: str | None = None) -> tuple[str, ...]:
        """Local paths of the packages' jars, fetched if not in the cache.

        Args:
            packages: Maven coordinates, `group:artifact:version`, optionally followed by
                `:classifier`.
            ivy_settings: Path of an Ivy settings file that names the repositories; by default the
                public one.

        Raises:
            ConfigurationError: a jar is unavailable, or is not the pinned one.
        """
        missing = [package for package in packages if not self.has(package)]
        if missing:
            self._fetch(missing, ivy_settings)
        for package in packages:
            self._verify(package)
        return tuple(str(self._jar(package)) for package in packages)

    def _jar(self, package: str) -> Path:
        group, *names = package.split(":")
        return self.path / group / f"{'-'.join(names)}.jar"

    def has(self, package: str) -> bool:
        """Whether the package's jar is in the cache."""
        jar = self._jar(package)
        return jar.is_file() and jar.with_suffix(".sha256").is_file()

    def _verify(self, package: str) -> None:
        jar = self._jar(package)
        expected = self.pinned.get(package) or jar.with_suffix(".sha256").read_text("ascii").strip()
        if sha256(jar) != expected:
            raise ConfigurationError(
                RunCode.JAR_CHANGED,
                f"the cached jar {jar} is not the {package} that it should be (checksum differs); "
                "remove the file",
            )

    def _fetch(self, packages: Sequence[str], ivy_settings: str | None) -> None:
        """Put jars and their checksums into the cache, each atomically."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.path, prefix=".fetch-") as folder:
                self._resolve(packages, Path(folder), ivy_settings)
                for package in packages:
                    self._keep(package, Path(folder) / self._jar(package).relative_to(self.path))
        except OSError as error:
            raise ConfigurationError(
                RunCode.JAR_UNAVAILABLE,
                f"{self._named(packages)} can't be kept in {self.path}: {error.strerror or error}; "
                f"{self.way_out}",
            ) from error

    def _keep(self, package: str, fetched: Path) -> None:
        checksum = sha256(fetched)
        if self.pinned.get(package, checksum) != checksum:
            raise ConfigurationError(
                RunCode.JAR_CHANGED,
                f"the repository's {package} is not the pinned one (SHA-256 {checksum}); it was "
                "not kept",
            )
        jar = self._jar(package)
        jar.parent.mkdir(exist_ok=True)
        fetched.with_suffix(".sha256").write_text(f"{checksum}\n", "ascii")
        fetched.with_suffix(".sha256").replace(jar.with_suffix(".sha256"))
        fetched.replace(jar)

    def _resolve(self, packages: Sequence[str], folder: Path, ivy_settings: str | None) -> None:
        """Let Ivy fetch the jars into a folder."""
        wanted, settings = folder / "ivy.xml", folder / "ivysettings.xml"
        wanted.write_text(_wanted(packages))
        settings.write_text(SETTINGS)
        kept = folder / "[organisation]" / "[artifact]-[revision](-[classifier]).[ext]"
        command: list[str | Path] = [java.find_java_home() / "bin" / "java"]
        command += ["-jar", self._ivy_jar(packages)]
        command += ["-settings", ivy_settings or settings, "-ivy", wanted]
        command += ["-cache", folder / "ivy", "-types", "jar", "bundle", "-retrieve", kept]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=RESOLVE_SECONDS,
                check=False,
            )
            output, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired:
            output, code = f"no answer within {RESOLVE_SECONDS} seconds", 1
        fetched = {each: folder / self._jar(each).relative_to(self.path) for each in packages}
        lacking = [each for each, jar in fetched.items() if not jar.is_file()]
        if code or lacking:
            raise ConfigurationError(
                RunCode.JAR_UNAVAILABLE,
                f"{self._named(lacking or packages)} is not in the cache and can't be fetched "
                f"({_reason(output)}); {self.way_out}",
            )

    def _ivy_jar(self, packages: Sequence[str]) -> Path:
        for jar in (spark_home() / "jars").glob("ivy-*.jar"):
            return jar
        raise ConfigurationError(
            RunCode.JAR_UNAVAILABLE,
            f"{self._named(packages)} is not in the cache and this PySpark carries no Ivy to fetch "
            f"it; {self.way_out}",
        )

    def _named(self, packages: Sequence[str]) -> str:
        more = f" and {len(packages) - 1} more" if len(packages) > 1 else ""
        return f"{self.kind} {packages[0]}{more}"


def sha256(path: Path) -> str:
    """The checksum of a file, as hex digits; a file that is as it was is not read again."""
    status = path.stat()
    return _sha256(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache
def _sha256(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wanted(packages: Sequence[str]) -> str:
    """Ivy's module file for the packages; their coordinates contain no XML markup."""
    lines = []
    for package in packages:
        group, artifact, version, *classifier = package.split(":")
        jar = ""
        if classifier:
            jar = f'<artifact name="{artifact}" type="jar" m:classifier="{classifier[0]}"/>'
        lines.append(
            f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="*->*" '
            f'transitive="false">{jar}</dependency>'
        )
    info = '<info organisation="singer-spark" module="jars"/>'
    maven = 'xmlns:m="http://ant.apache.org/ivy/maven"'
    return (
        '<ivy-module version="2.0" '
        f"{maven}>{info}<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _reason(output: str) -> str:
    """The line of Ivy's output that shows the cause."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # The first such line in Ivy's output is the cause; the ones after it are consequences.
    for word in ("Exception", "not found", "unresolved dependency", "no answer"):
        for line in lines:
            if word in line:
                return line.strip(":\t ")[:200]
    return lines[-1][:200] if lines else "no output from Ivy"


_WAY_OUT = "on a machine without network give its jar in `driver_jars`"
CACHE = JarCache("drivers", "the driver", _WAY_OUT, PINNED_SHA256)


def cached_jars(packages: str, *, ivy_settings: str | None = None) -> tuple[str, ...]:
    """Local paths of the jars of `group:artifact:version[,…]`, fetched if not in the cache.

    ConfigurationError: malformed coordinates; a jar is unavailable, or not the pinned one.
    """
    coordinates = [package.strip() for package in packages.split(",")]
    for package in coordinates:
        if not COORDINATES.fullmatch(package):
            raise ConfigurationError(
                RunCode.BAD_SETTING,
                f"setting driver_package: {package!r} is not group:artifact:version, as in "
                "org.postgresql:postgresql:42.7.8",
            )
    return CACHE.jars(coordinates, ivy_settings=ivy_settings)


def local_jars(paths: Sequence[str]) -> tuple[str, ...]:
    """Absolute paths of the user's jars; ConfigurationError: all that are missing."""
    jars = [Path(path).expanduser().absolute() for path in paths]
    missing = [str(jar) for jar in jars if not jar.is_file()]
    if missing:
        raise ConfigurationError(
            RunCode.BAD_SETTING, f"setting driver_jars: no such file: {', '.join(missing)}"
        )
    return tuple(str(jar) for jar in jars)


def _warm_cache() -> int:
    from tap_spark_jdbc.dialects import known_dialects

    known = known_dialects()
    for name in sys.argv[1:]:
        if name not in known:
            raise ConfigurationError(
                TapCode.DRIVER_UNKNOWN, f"unknown database {name!r}; known are {', '.join(known)}"
            )
        package = known[name].driver_package
        jars = cached_jars(package) if package else ()
        sys.stderr.write(f"{name}: {', '.join(jars) or 'its driver ships with Spark'}\n")
    return 0


if __name__ == "__main__":
    run_command_line(_warm_cache, "tap-spark-jdbc")
