"""Programs start without what singer-sdk loads for taps of web services, which all the same can be
had.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from singer_spark.core.lean_imports import import_singer_sdk
import_singer_sdk()
import tap_spark_jdbc.tap, target_spark_lake.target
slow = {"requests", "urllib3", "jsonpath_ng", "joblib", "numpy", "pyarrow", "pyspark"}
slow |= {"botocore", "upath", "fsspec", "lark", "arrow", "isoduration"}
slow &= set(sys.modules)
assert not slow, f"loaded all the same: {slow}"
from singer_sdk import Stream, target_base
from singer_sdk.schema import source
from singer_sdk.streams.rest import RESTStream
import joblib, requests
print(issubclass(RESTStream, Stream), source.requests.get is requests.get)
from singer_sdk.helpers._batch import StorageTarget
print(StorageTarget.split_url("file:///a/b"))
print(target_base.Parallel(1)(target_base.delayed(abs)(number) for number in (-1, 2)))
"""


def test_web_clients_are_loaded_on_use() -> None:
    """Web clients are loaded when they are used, and are the real ones."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True True", "('file:///a', 'b')", "[1, 2]"]


OTHER_SDK = {
    "__init__.py": "from singer_sdk.streams.rest import RESTStream, paginated",
    "streams/__init__.py": "",
    "streams/rest.py": "import requests\nclass RESTStream: ...\ndef paginated(): ...",
}
OF_OTHER_SDK = """
from singer_spark.core.lean_imports import import_singer_sdk
import_singer_sdk()
import requests, singer_sdk, sys
of_rest = sys.modules["singer_sdk.streams.rest"]
print(singer_sdk.paginated.__module__, singer_sdk.RESTStream is of_rest.RESTStream)
print(sys.modules["singer_sdk.streams.rest"].requests is requests, bool(requests.__file__))
"""


def test_sdk_with_other_layout_is_imported_unchanged(tmp_path: Path) -> None:
    for name, text in OTHER_SDK.items():
        path = tmp_path / "singer_sdk" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", OF_OTHER_SDK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["singer_sdk.streams.rest True", "True True"]
