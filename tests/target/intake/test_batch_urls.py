"""Errors about files of BATCH messages show no secret of their URLs (no bucket)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ProtocolError
from singer_spark.store.storage import Storage
from target_spark_lake.intake.batch_message import (
    BatchFile,
    BatchLocation,
    BatchLocations,
    BatchMessage,
)
from target_spark_lake.load.batch_files import json_lines

URL = "s3://user:planted@bucket/file?X-Amz-Signature=planted"


class Roots:
    """Finds every file in one place."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def locations(self, *_: Any) -> Any:
        return [(self.storage, "file")], None


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / "file").write_bytes(b"PAR1")
    return Storage(str(tmp_path), {})


def found(storage: Storage, bytes_: int) -> BatchLocations:
    roots: Any = Roots(storage)
    locations = BatchLocations(roots, storage)
    locations.find("s", BatchFile(URL, bytes=bytes_))
    return locations


def message(rows: object) -> BatchMessage:
    said = {
        "stream": "s",
        "encoding": {"format": "jsonl"},
        "manifest": [URL],
        "files": [{"rows": rows}],
    }
    return BatchMessage.of(said)


@pytest.mark.parametrize(
    ("raising", "why"),
    [
        (lambda _: message("many"), "which is not a count"),
        (lambda _: BatchFile(URL, rows=1).check_rows("s", 2), "holds 2 records"),
        (lambda storage: found(storage, 5), "has 4 bytes"),
        (lambda storage: found(storage, 4).find("s", BatchFile(URL)), "was named before"),
        (
            lambda storage: list(
                json_lines(
                    message(1),
                    BatchFile(URL),
                    BatchLocation(storage, "file", 4, in_bucket=True, is_ours=True),
                )
            ),
            "is a Parquet file",
        ),
    ],
)
def test_errors_hide_url_secrets(storage: Storage, raising: Any, why: str) -> None:
    with pytest.raises(ProtocolError, match=why) as raised:
        raising(storage)
    assert "bucket/file" in str(raised.value)
    assert "planted" not in str(raised.value)
