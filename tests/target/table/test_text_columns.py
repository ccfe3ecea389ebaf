"""Columns of text: what came is there as it came, whatever way it took; what was a number before
has one spelling.
"""

from __future__ import annotations

import gzip
import math
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.exact_json import from_json, to_json
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema
from target_spark_lake.table.arrow_columns import fraction_texts, value_text

ID = {"type": ["integer", "null"]}
NUMBER = {"type": ["number", "null"]}
NUMBER_OR_TEXT = {"type": ["number", "string", "null"]}
TEXT = {"type": ["string", "null"]}
# One that only jsonschema decides: all lines of the stream go through Python.
ADDRESS = {"type": ["string", "null"], "format": "uri"}
DECLARED = {"stream_options": {"s": {"columns": {"v": "string"}}}}

numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)


@given(numbers)
def test_number_in_json_text_keeps_its_spelling(text: str) -> None:
    """A number in a JSON text keeps its spelling and its value."""
    assert to_json(from_json(f'{{"a":[{text}]}}')) == f'{{"a":[{text}]}}'
    assert from_json(text) == Decimal(text)


def spelled(seed: int, count: int) -> list[str]:
    """Numbers as JSON may spell them."""
    rng = random.Random(seed)

    def one() -> str:
        whole = rng.choice(
            ["0", str(rng.randrange(1, 10)), str(rng.randrange(1, 10 ** rng.randrange(1, 30)))]
        )
        fraction = rng.choice(
            ["", "", "." + "".join(rng.choices("0123456789", k=rng.randrange(1, 25)))]
        )
        exponent = rng.choice(
            ["", "", rng.choice("eE") + rng.choice(["", "+", "-"]) + str(rng.randrange(420))]
        )
        return rng.choice(["", "-"]) + whole + fraction + exponent

    first = [
        "0.0000000001",
        "1E-10",
        "1e-10",
        "1.50",
        "-0",
        "-0.0",
        "1e400",
        "-1e400",
        "1.0E+2",
        "0",
        "5e-324",
    ]
    return [*first, *(one() for _ in range(count))]


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in bulk": ({"v": NUMBER_OR_TEXT}, {}),
    "by Spark": ({"v": NUMBER_OR_TEXT}, {"staging": "spark"}),
    "of no type": ({"v": {}}, {}),
    "declared": ({"v": NUMBER}, DECLARED),
    "an unbounded numeric": ({"v": {**NUMBER_OR_TEXT, "x-sql-datatype": "NUMERIC"}}, {}),
    "line by line": ({"v": NUMBER_OR_TEXT, "w": ADDRESS}, {}),
    "not validated": ({"v": NUMBER_OR_TEXT}, {"validate_records": False}),
    "mapped": ({"v": NUMBER_OR_TEXT}, {"stream_maps": {"s": {"more": "'x'"}}}),
}


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("way", WAYS)
def test_number_in_text_column_keeps_its_spelling(spark: object, tmp_path: Path, way: str) -> None:
    lake = Lake(tmp_path / "lake")
    properties, settings = WAYS[way]
    texts = spelled(len(way), 200)
    head = b'{"type": "RECORD", "stream": "s", "record": '
    lines = [head + b'{"id": %d, "v": %s}}\n' % (n, text.encode()) for n, text in enumerate(texts)]
    lake.load(schema("s", {"id": ID, **properties}), *lines, **settings)
    assert lake.rows("s", "id, v") == list(enumerate(texts))


def test_text_values_arrive_unchanged_on_all_paths(lake: Lake, tmp_path: Path) -> None:
    """A text value arrives unchanged, through Arrow and in batches."""
    texts = spelled(7, 100)
    lake.load(
        schema("s", {"id": ID, "v": TEXT}),
        *(record("s", id=n, v=text) for n, text in enumerate(texts)),
    )
    assert lake.rows("s", "id, v") == list(enumerate(texts))
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(
        gzip.compress(
            b"".join(b'{"id":%d,"v":%s}\n' % (n, t.encode()) for n, t in enumerate(texts))
        )
    )
    encoding = {"format": "jsonl", "compression": "gzip"}
    batch = {"type": "BATCH", "stream": "b", "encoding": encoding, "manifest": [file.as_uri()]}
    lake.load(schema("b", {"id": ID, "v": NUMBER_OR_TEXT}), batch, batch_roots=[str(tmp_path)])
    assert lake.rows("b", "id, v") == list(enumerate(texts))


@pytest.fixture
def lake(spark: object, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


FRACTIONS = [5.0, 0.0000000001, 12.5, -0.1, 1e16, 1e300, 5e-324, 123456789012.25, None]
PLAIN = [None if each is None else format(Decimal(repr(each)), "f") for each in FRACTIONS]
KEPT = [text if text is None or "." not in text else text.rstrip("0").rstrip(".") for text in PLAIN]


@pytest.mark.parametrize(
    "kind", [Lake, DeltaLake, IcebergLake], ids=["parquet", "delta", "iceberg"]
)
@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_old_numbers_become_plain_digits_as_text(
    spark: object, tmp_path: Path, method: str, kind: type[Lake]
) -> None:
    """When a column becomes text, its old numbers are written in plain digits."""
    lake = kind(tmp_path / "lake")
    old = schema(
        "s", {"id": ID, "v": NUMBER, "m": {**NUMBER, "x-sql-datatype": "DECIMAL(20,12)"}}, ("id",)
    )
    lake.load(
        old,
        *(record("s", id=n, v=each, m=each if n < 3 else None) for n, each in enumerate(FRACTIONS)),
    )
    declared = {
        "stream_options": {"s": {"columns": {"v": "string", "m": "string"}, "load_method": method}}
    }
    lake.load(
        old, b'{"type":"RECORD","stream":"s","record":{"id":99,"v":1E-10,"m":1.50}}\n', **declared
    )
    assert [v for _, v in lake.rows("s", "id, v")] == [*KEPT, "1E-10"]
    exact = ["5.000000000000", "0.000000000100", "12.500000000000"]
    assert [m for _, m in lake.rows("s", "id, m")] == [*exact, *[None] * 6, "1.50"]


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=20), st.booleans())
def test_fraction_texts_are_plain_exact_and_unique(values: list, narrow: bool) -> None:
    """A fraction from a typed file becomes one exact text in plain digits."""
    kind = pa.float32() if narrow else pa.float64()
    if narrow:
        values = [
            None if v is None or abs(v) > 3e38 else struct.unpack("f", struct.pack("f", v))[0]
            for v in values
        ]
    for text, value in zip(fraction_texts(pa.array(values, kind)).to_pylist(), values, strict=True):
        if value is None:
            assert text is None
        elif math.isfinite(value):
            assert not set("eE") & set(text)
            read = struct.unpack("f", struct.pack("f", float(text)))[0] if narrow else float(text)
            assert (read, math.copysign(1, read)) == (value, math.copysign(1, value))
            assert narrow or text == value_text(value)
        else:
            assert text in ("NaN", "Infinity", "-Infinity")
