"""The command that starts Spark's JVM: the one that `spark-submit` ends in, or `spark-submit` itself.

`spark-submit` asks a Python where Spark lies and a JVM of its own for that command: half a second of each start. What
they say is learned once for each Java and PySpark. Where a variable, a file or a setting counts that only they know, it
is left to them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from singer_spark.errors import ConfigurationError
from singer_spark.jvm.hidden_arguments import PROPERTIES_FILE, hidden_options, settings_words
from singer_spark.jvm.java import cache_folder, java_stamp

FORMAT = "1"
ASK_SECONDS = 60
MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
# What the JVM reads itself, and what is handed on to it.
KNOWN_VARIABLES = {"SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "SPARK_USER"}
KNOWN_VARIABLES |= {"SPARK_SUBMIT_OPTS", "SPARK_CONNECT_MODE"}
OURS = "SPARK_LAKE_"
# What makes a class path or a library path, and where a driver runs.
ONLY_OF_SPARK = ("spark.driver.extra", "spark.driver.default", "spark.submit.", "spark.jars.packages")
HANDLED = {"spark.driver.extraJavaOptions"}


@dataclass(frozen=True)
class JvmStart:
    """What a JVM is started with.

    Attributes:
        java_home: Its Java.
        spark_home: PySpark's folder.
        conf: Spark's settings.
        java_options: As one would write them in a shell.
        jars: Local paths, for the class path.
    """

    java_home: Path
    spark_home: Path
    conf: Mapping[str, str]
    java_options: str
    jars: tuple[str, ...] = field(default=())

    @property
    def is_plain(self) -> bool:
        """Whether all that the command depends on is known here."""
        known = {name for name in os.environ if name.startswith(OURS)} | KNOWN_VARIABLES
        variables = {name for name in os.environ if name.startswith("SPARK_")} - known
        folders = [name for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
        settings = [name for name in self.conf if name.startswith(ONLY_OF_SPARK) and name not in HANDLED]
        return not (
            variables
            or folders
            or settings
            or (self.spark_home / "conf").exists()
            or not self.conf["spark.master"].startswith("local")
            or "-Xmx" in self.java_options
            or any(os.pathsep in jar for jar in self.jars)
        )


def at_once(start: JvmStart) -> list[str] | None:
    """The JVM's own command, its jars on the class path; None where `spark-submit` must say it."""
    if not start.is_plain:
        return None
    try:
        of_environment = shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", ""))
        options = [*of_environment, f"-Xmx{start.conf['spark.driver.memory']}", *shlex.split(start.java_options)]
    except ValueError:  # Spark says what is wrong with it
        return None
    learned = _learned(start)
    if learned is None:
        return None
    class_path = os.pathsep.join([learned.class_path.rstrip(os.pathsep), *start.jars])
    java, settings = str(start.java_home / "bin" / "java"), settings_words(start.conf)
    return [java, "-cp", class_path, *hidden_options(options), *learned.options, MAIN_CLASS, *settings, "pyspark-shell"]


def by_spark_submit(start: JvmStart) -> list[str]:
    """The command that finds out everything itself; its jars come by `spark.jars`."""
    conf = with_jars(start.conf, start.jars)
    settings = settings_words({name: value for name, value in conf.items() if name not in HANDLED})
    # Beside the file of ours that of Spark's own folder counts, as it does without ours.
    defaults = ["--load-spark-defaults"] if PROPERTIES_FILE in settings else []
    memory = ["--driver-memory", conf["spark.driver.memory"], "--driver-java-options", _java_options(start)]
    return [str(start.spark_home / "bin" / "spark-submit"), *defaults, *settings, *memory, "pyspark-shell"]


def with_jars(conf: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    """The settings with these jars before the user's own."""
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
        raise ConfigurationError("PySpark is not installed; install singer-spark with its dependencies")
    return Path(found.submodule_search_locations[0])


def variables_at_once(start: JvmStart) -> dict[str, str]:
    """What `spark-submit` would have put into the JVM's environment."""
    return {"SPARK_HOME": str(start.spark_home), "PYTHONHASHSEED": "0"}


def _java_options(start: JvmStart) -> str:
    """As they are written in a shell; those that Spark is to complain of stay as they are."""
    try:
        return shlex.join(hidden_options(shlex.split(start.java_options)))
    except ValueError:
        return start.java_options


@dataclass(frozen=True)
class _Learned:
    """What Spark's launcher says of any start.

    Attributes:
        class_path: Of Spark.
        options: That its modules need.
    """

    class_path: str
    options: list[str]


def _learned(start: JvmStart) -> _Learned | None:
    """From the cache, else asked and kept; None where the launcher gave no answer that is understood."""
    facts = [FORMAT, *java_stamp(start.java_home), str(start.spark_home), str(_launcher_stamp(start.spark_home))]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    path = cache_folder() / "launcher" / f"{digest}.json"
    try:
        return _Learned(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        pass
    learned = _asked(start)
    if learned is not None:
        _keep(path, learned)
    return learned


def _launcher_stamp(spark_home: Path) -> int:
    """Changes with another PySpark in the same place."""
    return (spark_home / "version.py").stat().st_mtime_ns


def _asked(start: JvmStart) -> _Learned | None:
    command = [str(start.java_home / "bin" / "java"), "-Xmx128m", "-cp", str(start.spark_home / "jars" / "*")]
    command += ["org.apache.spark.launcher.Main", MAIN_CLASS, "pyspark-shell"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    # Of the Scala it only wants to hear that there is one.
    environment |= {"SPARK_HOME": str(start.spark_home), "SPARK_SCALA_VERSION": "2.13"}
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, timeout=ASK_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    words = [word.decode() for word in answer.partition(b"\0\n")[2].split(b"\0")[:-1]]
    # <java> -cp <class path> -Xmx1g <options> <main class> pyspark-shell
    if len(words) < 6 or words[1] != "-cp" or words[3] != "-Xmx1g" or words[-2:] != [MAIN_CLASS, "pyspark-shell"]:
        return None
    return _Learned(words[2], words[4:-2])


def _keep(path: Path, learned: _Learned) -> None:
    """Written whole beside its place, then renamed; a cache that can't be written costs the next start the same."""
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"class_path": learned.class_path, "options": learned.options}))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
