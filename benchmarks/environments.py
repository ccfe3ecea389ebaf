"""What the cases need beside the project: peers, each in a virtual environment of its own, and a
JDBC driver.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
# By the kind of a server: where the driver is published, and its class.
DRIVERS = {
    "postgresql": (("org.postgresql", "postgresql", "42.7.8"), "org.postgresql.Driver"),
    "sqlite": (("org.xerial", "sqlite-jdbc", "3.50.3.0"), "org.sqlite.JDBC"),
    "mariadb": (("org.mariadb.jdbc", "mariadb-java-client", "3.5.6"), "org.mariadb.jdbc.Driver"),
}


def uv() -> str:
    """The `uv` beside this Python, of the workspace, or on the PATH."""
    for place in (
        Path(sys.executable).parent / "uv",
        *sorted((HERE.parent / ".tools").glob("**/bin/uv")),
    ):
        if place.exists():
            return str(place)
    return shutil.which("uv") or sys.exit("uv is missing: run `make setup`")


def peer(name: str) -> Path:
    """The folder of programs of the peer that `peers/<name>.txt` pins, installed at the first
    use.
    """
    requirements = HERE / "peers" / f"{name}.txt"
    mark = hashlib.sha256(requirements.read_bytes()).hexdigest()[:8]
    home = CACHE / "peers" / f"{name}-{mark}"
    ready = home / "ready"
    if not ready.exists():
        print(f"installing {name} ...", file=sys.stderr)
        subprocess.run(
            [uv(), "venv", "-q", "--clear", "--python", sys.executable, str(home)], check=True
        )
        python = str(home / "bin" / "python")
        install = [uv(), "pip", "install", "-q", "--compile-bytecode", "--python", python]
        subprocess.run([*install, "-r", str(requirements)], check=True)
        ready.touch()
    return home / "bin"


def java_home() -> Path:
    """The Java that our programs would run on, so that plain Spark runs on the same."""
    from singer_spark.engine.java import find_java_home

    return find_java_home()


def jdbc_driver(kind: str) -> tuple[Path, str]:
    """The jar of a database's driver, by the Ivy that ships in PySpark, and its class."""
    (organisation, module, revision), driver = DRIVERS[kind]
    jar = CACHE / "drivers" / f"{module}-{revision}.jar"
    if not jar.exists():
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        pattern = str(jar.parent / "[artifact]-[revision].[ext]")
        java = [str(java_home() / "bin" / "java"), "-jar", str(ivy), "-cache", str(CACHE / "ivy")]
        # Without `-types` the sources come too, and clash under this pattern.
        wanted = [
            "-dependency",
            organisation,
            module,
            revision,
            "-notransitive",
            "-types",
            "jar",
            "-retrieve",
            pattern,
        ]
        subprocess.run([*java, *wanted], check=True, stdout=sys.stderr)
    return jar, driver
