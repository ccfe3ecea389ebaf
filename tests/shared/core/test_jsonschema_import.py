"""Programs start without what jsonschema loads for formats that hardly any schema has."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from singer_spark.core.lean_imports import import_jsonschema
import_jsonschema()
import jsonschema, singer_sdk
left_out = {"lark", "arrow", "rfc3987_syntax", "isoduration"}
assert not left_out & set(sys.modules), "loaded all the same"
from target_spark_lake.validate.draft7 import draft7
for name, good, bad in (("iri", "http://ö.example/ä", "no iri"), ("iri-reference", "ä/b#c", "<>")):
    validator = draft7({"type": "string", "format": name})
    print(name, validator.is_valid(good), validator.is_valid(bad))
import isoduration
"""


@pytest.mark.slow
def test_slow_formats_are_loaded_on_first_use() -> None:
    """Slow formats are loaded when a value is checked, and validate as before."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["iri True False", "iri-reference True False"]
