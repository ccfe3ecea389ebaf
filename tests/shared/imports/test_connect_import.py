"""Programs attach to a Spark Connect server without pandas, which all the same can be had."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from singer_spark.imports.connect_import import import_connect
import_connect()
slow = [name for name in sys.modules if name.partition(".")[0] == "pandas"]
assert not slow, f"loaded all the same: {slow}"
from pyspark.sql.connect import session
from pyspark.sql.connect.client import core
import pandas
print(session.pd.DataFrame is pandas.DataFrame, core.pd.concat is pandas.concat)
print(session.is_datetime64_dtype("datetime64[ns]"), session.is_timedelta64_dtype("int64"))
"""


@pytest.mark.slow
def test_pandas_is_loaded_when_it_is_used_and_is_the_real_one() -> None:
    pytest.importorskip("grpc", reason="the packages of singer-spark[connect] are not installed: make setup")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True True", "True False"]
