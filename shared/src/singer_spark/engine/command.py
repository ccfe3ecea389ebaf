"""The command that starts Spark's JVM: what `spark-submit` would run, or `spark-submit` itself.

`spark-submit` determines that command with a JVM of its own, which takes a tenth of an idle run. It
is only used if there is a variable, a file or a setting that only it understands.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from singer_spark.core.config_secrets import holds_secret
from singer_spark.core.scratch import scratch_folder
from singer_spark.engine.spark_versions import (
    has_flag_for_defaults,
    memory_options,
    reflection_options,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

PROPERTIES_FILE = "--properties-file"


def settings_words(conf: Mapping[str, str], *, defaults: str = "") -> list[str]:
    """Spark settings as arguments; they override `defaults`, the text that begins their file."""
    secret = {name: value for name, value in conf.items() if holds_secret(name, value)}
    words = [
        word
        for name, value in conf.items()
        if name not in secret
        for word in ("--conf", f"{name}={value}")
    ]
    if not secret:
        return words
    lines = [f"{_property(name)}={_property(value)}\n" for name, value in secret.items()]
    return [PROPERTIES_FILE, _kept("".join([defaults, "\n", *lines])), *words]


def hidden_options(options: Sequence[str]) -> list[str]:
    """Java options, with secret system properties replaced by an argument file that Java reads."""
    found = []
    for option in options:
        name, _, value = option.partition("=")
        if not option.startswith("-D") or not holds_secret(name.removeprefix("-D"), value):
            found.append(option)
            continue
        quoted = option.replace("\\", "\\\\").replace('"', '\\"')
        found.append("@" + _kept(f'"{quoted}"'))
    return found


def _property(text: str) -> str:
    """A text as `java.util.Properties` parses it; everything but letters and digits is escaped."""
    units = text.encode("utf-16-be")
    numbers = [int.from_bytes(units[index : index + 2]) for index in range(0, len(units), 2)]
    return "".join(
        chr(each) if chr(each).isascii() and chr(each).isalnum() else f"\\u{each:04x}"
        for each in numbers
    )


def _kept(text: str) -> str:
    """Write the text to a file that is removed with the process; returns its path."""
    descriptor, path = tempfile.mkstemp(prefix="argument-", dir=scratch_folder())
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
JAVA_OPTIONS, MEMORY = "spark.driver.extraJavaOptions", "spark.driver.memory"
_OPENED = "lang lang.invoke lang.reflect io net nio util util.concurrent util.concurrent.atomic"
_OPENED_INSIDE = "jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"
# The options that Spark's launcher gives every driver (`JavaModuleOptions`), except the incubator
# module of vectors: only Spark's machine learning uses it, and Java warns of it at each start. A
# test compares the two.
MODULE_OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED.split()),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED_INSIDE.split()),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    *reflection_options(),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    *memory_options(),
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
]
# Variables that the JVM reads itself, and those passed on to it.
KNOWN_VARIABLES = {
    "SPARK_CONNECT_MODE",
    "SPARK_HOME",
    "SPARK_LOCAL_DIRS",
    "SPARK_LOCAL_HOSTNAME",
    "SPARK_LOCAL_IP",
    "SPARK_PUBLIC_DNS",
    "SPARK_SUBMIT_OPTS",
    "SPARK_USER",
}
OURS = "SPARK_LAKE_"
# Settings for the class path, the library path, and where a driver runs.
ONLY_OF_SPARK = (
    "spark.driver.extra",
    "spark.driver.default",
    "spark.submit.",
    "spark.jars.packages",
)


@dataclass(frozen=True)
class JvmCommand:
    """The command line of the JVM.

    Attributes:
        words: Program and arguments; secrets are passed in files.
        jars: Our jars on its class path, after Spark's.
    """

    words: list[str]
    jars: tuple[str, ...] = ()


def jvm_command(
    java_home: Path, conf: Mapping[str, str], java_options: str, jars: tuple[str, ...]
) -> JvmCommand:
    """The command for these settings; `java_options` (as in a shell) replace those in `conf`."""
    if not _is_plain(conf, java_options, jars):
        return JvmCommand(_spark_submit(conf, java_options, jars))
    try:
        of_environment = shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", ""))
        options = hidden_options(
            [*of_environment, f"-Xmx{conf[MEMORY]}", *shlex.split(java_options)]
        )
    except ValueError:  # Spark will report what is wrong with it
        return JvmCommand(_spark_submit(conf, java_options, jars))
    # In the order of Spark's launcher, to which an archive of classes is bound.
    all_jars = spark_home() / "jars"
    spark = [spark_home() / "conf", *all_jars.glob("slf4j-api-*.jar"), all_jars / "*"]
    java = [str(java_home / "bin" / "java"), "-cp", os.pathsep.join([*map(str, spark), *jars])]
    return JvmCommand(
        [*java, *options, *MODULE_OPTIONS, MAIN_CLASS, *settings_words(conf), "pyspark-shell"],
        jars,
    )


def _is_plain(conf: Mapping[str, str], java_options: str, jars: Sequence[str]) -> bool:
    """Whether everything that the command depends on is known here."""
    variables = {
        name for name in os.environ if name.startswith("SPARK_") and not name.startswith(OURS)
    }
    folders = [name for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    settings = [name for name in conf if name.startswith(ONLY_OF_SPARK) and name != JAVA_OPTIONS]
    return not (
        variables - KNOWN_VARIABLES
        or folders
        or settings
        or (spark_home() / "conf").exists()
        or not conf["spark.master"].startswith("local")
        or "-Xmx" in java_options
        or any(os.pathsep in jar for jar in jars)
    )


def _spark_submit(conf: Mapping[str, str], java_options: str, jars: Sequence[str]) -> list[str]:
    """The command that determines everything itself; its jars are passed by `spark.jars`."""
    # The file in Spark's own folder still applies besides ours, as it would without ours.
    has_flag = has_flag_for_defaults()
    given = {name: value for name, value in with_jars(conf, jars).items() if name != JAVA_OPTIONS}
    settings = settings_words(given, defaults="" if has_flag else _defaults())
    defaults = ["--load-spark-defaults"] if has_flag and PROPERTIES_FILE in settings else []
    try:
        java_options = shlex.join(hidden_options(shlex.split(java_options)))
    except ValueError:  # Spark says what is wrong with it
        pass
    memory = ["--driver-memory", conf[MEMORY], "--driver-java-options", java_options]
    program = str(spark_home() / "bin" / "spark-submit")
    return [program, *defaults, *settings, *memory, "pyspark-shell"]


def _defaults() -> str:
    """What is in the file of settings in Spark's own folder."""
    folder = os.environ.get("SPARK_CONF_DIR")
    path = (Path(folder) if folder else spark_home() / "conf") / "spark-defaults.conf"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def with_jars(conf: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    """The settings with these jars put before the user's own."""
    if not jars:
        return dict(conf)
    return {**conf, "spark.jars": ",".join([*jars, *filter(None, [conf.get("spark.jars")])])}


def spark_home() -> Path:
    """PySpark's folder, found without importing it.

    Raises:
        ConfigurationError: it is not installed.
    """
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            "PySpark is not installed; install singer-spark with its dependencies",
        )
    return Path(found.submodule_search_locations[0])
