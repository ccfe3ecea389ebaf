"""The command line: one line for each error, questions, settings, a JVM that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from target.loading import Lake, record, schema, state, to_bytes

TARGET = Path(sys.executable).parent / "target-spark-lake"
ID = {"id": {"type": ["integer", "null"]}}
SECONDS = 60


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def config(lake: Lake) -> dict:
    return {"bucket": str(lake.folder), "pipeline": "test", "spark": {"master": "local[2]"}}


def command(folder: Path, config: dict, *flags: str) -> list[str]:
    path = folder / "target.json"
    path.write_text(json.dumps(config))
    return [str(TARGET), "--config", str(path), *flags]


def run(
    command: list[str], data: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        input=data,
        capture_output=True,
        timeout=SECONDS,
        env={**os.environ, **environment},
        check=False,
    )


def error_lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """What the program itself says on standard error."""
    return [
        line for line in done.stderr.decode().splitlines() if line.startswith("target-spark-lake: ")
    ]


GOOD = to_bytes(schema("s", ID), record("s", id=1), state(x=1))


def test_load_from_file_prints_state_and_summary(tmp_path, lake, config) -> None:
    """A load from a file prints only the state, and its summary on standard error."""
    (tmp_path / "in.singer").write_bytes(GOOD)
    done = run(command(tmp_path, config, "--input", str(tmp_path / "in.singer")))
    assert (done.returncode, done.stdout) == (0, b'{"x":1}\n'), done.stderr.decode()
    assert "Done! 1 records in 1 stream(s)" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert lake.rows("s", "id") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "data", "said"),
    [
        ({"bucket": None, "format": "csv"}, GOOD, "bucket: is required"),
        ({"pipeline": None}, GOOD, "pipeline: is required"),
        ({}, GOOD + b"garbage\n", "input line 4 is not JSON"),
        (
            {},
            to_bytes(record("s", id=1)),
            "input line 1: a RECORD of stream s came before its SCHEMA",
        ),
        (
            {},
            GOOD + to_bytes(record("s", id="x")),
            "input line 4: stream s: a record is invalid at /id: 'x' is not",
        ),
        ({}, to_bytes({**state(), "final": False}, schema("s", ID)), "the tap died"),
    ],
)
def test_error_is_one_line_and_changes_nothing(tmp_path, lake, config, change, data, said) -> None:
    """The exit code is 1."""
    config = {name: value for name, value in {**config, **change}.items() if value is not None}
    done = run(command(tmp_path, config), data)
    (line,) = error_lines(done)
    assert said in line
    assert (done.returncode, done.stdout) == (1, b"")
    assert "Traceback" not in done.stderr.decode()
    assert lake.files() == []


def test_unwritable_bucket_is_reported(tmp_path, config) -> None:
    (tmp_path / "file").write_text("no folder")
    # In the second one no user can make a file, and nothing there is a matter of a store's options.
    for bucket in (str(tmp_path / "file/lake"), "/proc/lake"):
        done = run(command(tmp_path, {**config, "bucket": bucket}), GOOD)
        (line,) = error_lines(done)
        assert bucket.removesuffix("/lake") in line
        assert "storage_options" not in line
        assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.slow
def test_invalid_or_missing_config_is_reported(tmp_path) -> None:
    (tmp_path / "bad.json").write_text("{")
    for path in (tmp_path / "bad.json", tmp_path / "missing.json"):
        done = run([str(TARGET), "--config", str(path)], GOOD)
        (line,) = error_lines(done)
        assert path.name in line
        assert done.returncode == 1


def test_debug_level_shows_traceback(tmp_path, config) -> None:
    done = run(command(tmp_path, config, "--log-level", "debug"), b"garbage\n")
    assert "Traceback" in done.stderr.decode()
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [["--help"], ["--version"], ["--about"], ["--about", "--format", "json"], []]
)
def test_help_and_config_errors_need_no_spark(flags: list[str]) -> None:
    code = "import sys; from target_spark_lake.__main__ import main\ntry:\n    main()\nfinally:\n"
    code += (
        "    print([name for name in sys.modules if name.startswith('pyspark')], file=sys.stderr)"
    )
    done = run([sys.executable, "-c", code, *flags])
    assert done.stderr.decode().splitlines()[-1] == "[]"
    assert done.returncode == (0 if flags else 1)


def test_about_names_every_setting(tmp_path) -> None:
    from target_spark_lake.config.settings import PROPERTIES

    about = json.loads(run([str(TARGET), "--about", "--format", "json"]).stdout)
    assert set(PROPERTIES) <= set(about["settings"]["properties"])
    assert "batch" in about["capabilities"]


@pytest.mark.usefixtures("with_pandas")
def test_config_merges_files_and_environment(tmp_path, lake, config) -> None:
    del config["pipeline"]
    done = run(
        command(tmp_path, config, "--config", "ENV"),
        to_bytes(state(x=1)),
        TARGET_SPARK_LAKE_PIPELINE="test",
    )
    assert done.returncode == 0, done.stderr.decode()
    assert lake.state() == {"x": 1}


@pytest.fixture
def waiting(tmp_path, config) -> Iterator[subprocess.Popen[bytes]]:
    """A target that has got records which Spark shall stage, and waits for more."""
    by_spark = command(tmp_path, {**config, "staging": "spark"})
    process = subprocess.Popen(
        by_spark, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(to_bytes(schema("s", ID), *(record("s", id=n) for n in range(10))))
    process.stdin.flush()
    yield process
    process.kill()
    process.communicate()


def descendants(process: int) -> list[int]:
    """Ids of the living processes below one, zombies left out."""
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = status.read_text().split(" (", 1)
        except OSError:
            continue
        kind, parent = rest.rsplit(")", 1)[1].split()[:2]
        if int(parent) == process and kind != "Z":
            found += [int(number), *descendants(int(number))]
    return found


def jvm_of(process: subprocess.Popen[bytes]) -> int:
    """Id of the JVM below the process, once it runs."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for child in descendants(process.pid):
            words = [b""]
            with suppress(OSError):
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            # Spark's launcher, which goes before it, has the same word among its arguments.
            launcher = b"org.apache.spark.launcher.Main" in words
            if (
                words[0].endswith(b"java")
                and b"org.apache.spark.deploy.SparkSubmit" in words
                and not launcher
            ):
                return child
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
    raise AssertionError("no JVM came up")


@pytest.mark.slow
def test_killed_jvm_fails_run_in_one_line(waiting, lake) -> None:
    os.kill(jvm_of(waiting), signal.SIGKILL)
    output, errors = waiting.communicate(GOOD, timeout=SECONDS)
    lines = [
        line for line in errors.decode().splitlines() if line.startswith("target-spark-lake: ")
    ]
    assert len(lines) == 1, errors.decode()
    # It may be killed before it is ready.
    assert re.match("target-spark-lake: RUN-01[12] .*SIGKILL", lines[0])
    assert "Traceback" not in errors.decode()
    assert (waiting.returncode, output) == (1, b"")
    assert lake.tables() == []
    assert lake.state() is None
