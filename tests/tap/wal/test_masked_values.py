"""Masked columns of the log: what needs no server is asked of none, and no error quotes a value
(plain Python).
"""

from __future__ import annotations

import hmac
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from singer_spark.errors import SourceError
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.mask import Kind, Mask
from tap_spark_jdbc.plan.stream_columns import masked
from tap_spark_jdbc.supply.columnar_query import Outcome
from tap_spark_jdbc.wal import pgoutput
from tap_spark_jdbc.wal.pgoutput import LogValues

POSTGRESQL = known_dialects()["postgresql"]


def values(native_type: str, kind: Kind | None, arrow: pa.DataType) -> LogValues:
    column = POSTGRESQL.column("c", native_type, nullable=True)
    column = column if kind is None else masked(column, Mask(kind, b"k"))
    database: Any = SimpleNamespace(source=SimpleNamespace(dialect=POSTGRESQL), columnar=None)
    return LogValues("s", {"c": column}, {"c": arrow}, database, "t")


@pytest.mark.parametrize(
    ("native_type", "kind", "arrow", "made"),
    [
        ("text", "redact", pa.string(), "***"),
        ("bigint", "redact", pa.string(), "***"),
        ("date", "null", pa.date32(), None),
        ("integer[]", "null", pa.list_(pa.int32()), None),
        ("character varying(20)", "last4", pa.string(), "nted"),
        ("text", "hash", pa.string(), hmac.digest(b"k", b"planted", "sha256").hex()),
    ],
)
def test_server_independent_masks_are_made_locally(
    native_type: str, kind: Kind, arrow: pa.DataType, made: str | None
) -> None:
    found = values(native_type, kind, arrow).of({"c": pa.array(["planted", None])})["c"]
    assert (found.type, found.to_pylist()) == (arrow, [made, None])


@pytest.mark.parametrize(("kind", "shown"), [("hash", False), ("last4", False), (None, True)])
def test_server_message_is_shown_only_without_masks(
    kind: Kind | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Outcome(state="22P02", refused="invalid input syntax for type money: planted")
    monkeypatch.setattr(pgoutput, "conninfo", lambda _: "")
    monkeypatch.setattr(pgoutput, "read", lambda *_: refused)
    with pytest.raises(SourceError, match=r"TAP-062 .*c") as raised:
        values("money", kind, pa.string()).of({"c": pa.array(["planted"])})
    assert ("planted" in str(raised.value)) is shown
    assert shown or "(error 22P02)" in str(raised.value)
