"""JDBC driver jars: pinned ones of known databases, and the user's own by coordinates or by path.

`python -m tap_spark_jdbc.source.drivers postgresql sqlite` fills the cache beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from singer_spark.engine.packages import COORDINATES, JarCache
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, run_command_line
from tap_spark_jdbc.error_codes import TapCode

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
CACHE = JarCache(
    "drivers",
    "the driver",
    "on a machine without network give its jar in `driver_jars`",
    PINNED_SHA256,
)


def cached_jars(packages: str, *, ivy_settings: str | None = None) -> tuple[str, ...]:
    """Local paths of the jars of `group:artifact:version[,…]`, fetched if not in the cache.

    Raises:
        ConfigurationError: malformed coordinates, or a jar that is unavailable or not the pinned
            one.
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
    """Absolute paths of the user's jars on this machine.

    ConfigurationError names all that are missing.
    """
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
