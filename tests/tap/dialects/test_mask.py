"""A mask makes the same of a text in Python and in Spark, by RFC 2104's HMAC, and shows its key to
nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.errors import redact
from tap_spark_jdbc.dialects.mask import KINDS, Mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    "",
    "a",
    "abcd",
    "abcde",
    "4111111111111111",
    "ключ 键 🔑",
    "🔑🔑🔑🔑🔑",
    " x ",
    "a'b\"\\c",
    "line\nbreak",
    None,
]


@pytest.mark.parametrize("key", ["k", "κλειδί", "x" * 64, "x" * 65, "it's"])
def test_spark_and_python_mask_equally(spark: SparkSession, key: str) -> None:
    masks = [Mask.by(kind, key) for kind in ("hash", "last4")]
    rows = spark.createDataFrame([(text,) for text in TEXTS], "t STRING")
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        found = rows.selectExpr(*(mask.spark_sql("t") for mask in masks)).collect()
    assert [tuple(row) for row in found] == [
        tuple(mask.of(text) for mask in masks) for text in TEXTS
    ]


@given(st.text(), st.text(min_size=1))
def test_hash_mask_is_hmac_of_text(text: str, key: str) -> None:
    assert (
        Mask.by("hash", key).of(text)
        == hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    )


def test_mask_keeps_null_and_hides_short_text() -> None:
    assert [Mask.by(kind, "k").of(None) for kind in KINDS] == [None] * 4
    shown = [Mask.by("last4", None).of(text) for text in ("", "1234", "12345", "4111111111111111")]
    assert shown == ["***", "***", "2345", "1111"]
    assert Mask.by("redact", None).of("text") == "***"
    assert Mask.by("null", None).of("text") is None


def test_mask_key_and_derived_pads_are_hidden() -> None:
    mask = Mask.by("hash", "planted-key")
    assert "planted" not in repr(mask)
    pads = [part for part in mask.spark_sql("t").split("'") if len(part) == 128]
    assert len(pads) == 2
    assert redact(" ".join(pads)) == "***** *****"
