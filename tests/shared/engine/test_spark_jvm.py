"""The JVM's start, by commands that end in its place."""

import sys

import pytest

from singer_spark.engine import spark_jvm
from singer_spark.errors import ConfigurationError


@pytest.mark.parametrize(
    "end, cause",
    [
        ("kill -9 $$", "was ended by SIGKILL"),
        ("echo 'no such option' >&2; exit 1", "no such option"),
    ],
)
def test_jvm_death_at_start_is_reported(
    end: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of a killed JVM is only a warning and does not explain its end."""
    monkeypatch.setattr(spark_jvm, "_jvm", spark_jvm._Jvm())
    warning = "WARNING: Using incubator modules: jdk.incubator.vector"
    with pytest.raises(ConfigurationError, match=cause):
        spark_jvm.start_jvm(["sh", "-c", f"echo '{warning}' >&2; {end}"], grace_seconds=0)


def test_python_workers_do_not_show_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meltano turns all warnings of its plugins on; those of PySpark are not the user's."""
    monkeypatch.setattr(spark_jvm, "_jvm", spark_jvm._Jvm())
    monkeypatch.setenv("PYTHONWARNINGS", "once")
    warning = (
        "import sys, warnings; print('no warning', file=sys.stderr); warnings.warn('open', "
        "ResourceWarning)"
    )
    with pytest.raises(ConfigurationError, match="RUN-011"):
        spark_jvm.start_jvm([sys.executable, "-c", f"{warning}; exit(1)"], grace_seconds=0)
