"""Programs start without what singer-sdk loads for taps of web services, which all the same can be had."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from singer_spark.jsonschema_import import import_jsonschema
from singer_spark.singer_sdk_import import import_singer_sdk
import_jsonschema()
import_singer_sdk()
import tap_spark_jdbc.tap, target_spark_lake.target
slow = {"requests", "urllib3", "jsonpath_ng", "joblib", "numpy", "pyarrow", "pyspark", "botocore"} & set(sys.modules)
assert not slow, f"loaded all the same: {slow}"
from singer_sdk import Stream, target_base
from singer_sdk.schema import source
from singer_sdk.streams.rest import RESTStream
import joblib, requests
print(issubclass(RESTStream, Stream), source.requests.get is requests.get)
print(target_base.Parallel(1)(target_base.delayed(abs)(number) for number in (-1, 2)))
"""


def test_web_clients_are_loaded_when_they_are_used_and_are_the_real_ones() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True True", "[1, 2]"]
