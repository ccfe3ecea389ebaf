"""Compressed batch files that expand to more than anyone would send."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from singer_spark.errors import ProtocolError
from singer_spark.store.storage import Storage
from target.loading import JSON, Lake, schema
from target_spark_lake.intake.batch_message import BatchFile, BatchLocation, BatchMessage
from target_spark_lake.load import batch_files
from target_spark_lake.load.batch_files import json_lines

MEGABYTE = 1 << 20


def batch(path: Path) -> JSON:
    return {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "jsonl", "compression": "gzip"},
        "manifest": [path.as_uri()],
    }


def blank_lines(path: Path, megabytes: int) -> Path:
    with gzip.open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(b"\n" * MEGABYTE)
        file.write(b'{"id": 1}\n')
    return path


@pytest.mark.usefixtures("without_jvm")
def test_expanding_batches(tmp_path: Path) -> None:
    """A compressed batch file that expands over the limit is an error with file and setting.

    Blank lines count.
    """
    lake, path = Lake(tmp_path / "lake"), blank_lines(tmp_path / "bomb.jsonl.gz", 8)
    settings = {"batch_roots": [str(tmp_path)]}
    problem = (
        r"stream s: batch file .*bomb\.jsonl\.gz expands from \d+ bytes to more than 3 MB.* "
        r"batch_max_expanded_mb"
    )
    message = schema("s", {"id": {"type": "integer"}})
    with pytest.raises(ProtocolError, match=problem):
        lake.load(message, batch(path), batch_max_expanded_mb=3, **settings)
    lake.load(message, batch(path), batch_max_expanded_mb=9, **settings)
    assert lake.rows("s", "id") == [(1,)]
    lake.load(message, batch(path), **settings)
    assert lake.rows("s", "id") == [(1,), (1,)]


@pytest.mark.parametrize(("most_mb", "fits"), [(4, True), (1, False)])
def test_default_expansion_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_mb: int, fits: bool
) -> None:
    """The limit is 100 times the file's size, or a fixed number of megabytes if larger."""
    monkeypatch.setattr(batch_files, "LIKELY_EXPANDED_MB", most_mb)
    path = blank_lines(tmp_path / "bomb.jsonl.gz", 2)
    place = BatchLocation(
        Storage(str(tmp_path)), path.name, path.stat().st_size, in_bucket=False, is_ours=False
    )
    assert place.size * 100 < MEGABYTE
    message = BatchMessage.of(batch(path))
    if fits:
        assert (
            sum(lines.rows for lines in json_lines(message, BatchFile(path.as_uri()), place)) == 1
        )
    else:
        with pytest.raises(ProtocolError, match="LAKE-014"):
            list(json_lines(message, BatchFile(path.as_uri()), place))
