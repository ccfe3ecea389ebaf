"""A session's thread and one that reads or merges a stream import PySpark at once: both have all of
it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# One thread is held inside of PySpark's root until another one, which begins with a part of it,
# waits for the root.
MEETING = """
import importlib, sys, threading, time
from contextlib import suppress
from unittest.mock import MagicMock
from singer_spark.errors import SchemaError
from singer_spark.engine import gateway as jvm_gateway
from singer_spark.engine import session as spark_session
from singer_spark.engine.spark_settings import SparkOptions
from tap_spark_jdbc.send.stream_output import LineReading
from target_spark_lake.formats.parquet_merge import _Merge

inside, failed = threading.Event(), []

def hold(event, arguments):
    if event == "import" and arguments[0] == "pyspark.conf" and not inside.is_set():
        inside.set()
        # The import system counts who waits for a module, and notifies nobody.
        while not importlib._bootstrap._module_locks["pyspark"]().waiters:
            time.sleep(0.01)

def make_session():
    try:
        spark_session.get_session(SparkOptions("tap", "local[1]", None, {}, ()))
    except Exception as error:
        failed.append(str(error))

def no_jvm():
    raise RuntimeError("no JVM here")

sys.addaudithook(hold)
spark_session.begin_jvm = lambda options: None
jvm_gateway.known_to_pyspark = no_jvm
session = threading.Thread(target=make_session)
session.start()
inside.wait()
WHO
session.join()
assert len(failed) == 1 and "no JVM here" in failed[0], failed
"""


def met(who: str) -> None:
    program = MEETING.replace("WHO", who)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("with_pandas")
def test_session_and_reader_import_all_of_pyspark() -> None:
    """A session and a reader that start at once have all of PySpark."""
    met(
        "with suppress(SchemaError): LineReading._reader.func(MagicMock())\n"
        "assert sys.modules['tap_spark_jdbc.supply.spark_reader'].SparkReader"
    )


@pytest.mark.usefixtures("with_pandas")
def test_session_and_merge_import_all_of_pyspark() -> None:
    """A session and a merge that start at once have all of PySpark."""
    met(
        "merge = MagicMock(_compared_keys=1)\n"
        "merge._writer.settings.by_spark = True\n"
        "with suppress(Exception): _Merge._engine.func(merge)\n"
        "assert sys.modules['target_spark_lake.formats.spark_merge'].SparkMerge"
    )
