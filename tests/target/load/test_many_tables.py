"""Many small tables: what each costs in requests to the lake, by count, and that they are staged on
the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from servers.proxy import Proxy, running
from singer_spark.store.storage import Storage
from target.loading import Lake, record, schema
from target_spark_lake.layout import Layout
from target_spark_lake.load import batches
from target_spark_lake.table.table_record import TableRecord, claim_all

if TYPE_CHECKING:
    from servers.s3 import S3

JSON = dict[str, Any]
PROPERTIES = {"id": {"type": "integer"}, "v": {"type": ["string", "null"]}}


def sent(tables: int, **annotations: Any) -> list[JSON]:
    """All streams of a run, a STATE behind each."""
    messages: list[JSON] = []
    for number in range(tables):
        stream = f"t{number:03d}"
        messages.append(schema(stream, PROPERTIES, ("id",), **annotations))
        messages += [record(stream, id=n, v=f"{stream} {n}") for n in range(3)]
        messages.append(
            {"type": "STATE", "value": {"bookmarks": {f"t{n:03d}": {} for n in range(number + 1)}}}
        )
    return messages


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    with running(s3.endpoint) as proxy:
        yield proxy


class RemoteLake(Lake):
    """A lake in a bucket, each of whose requests is counted."""

    def __init__(self, s3: S3, proxy: Proxy, folder: Path) -> None:
        super().__init__(folder)
        self.url, self.proxy = s3.new_bucket(), proxy
        self.options = {**s3.storage_options, "endpoint_url": proxy.endpoint}

    def requests(self, messages: list[JSON], **settings: Any) -> Counter[str]:
        """Of a whole run, by method."""
        self.proxy.passed.clear()
        self.load(*messages, bucket=self.url, storage_options=self.options, **settings)
        return Counter(request.method for request in self.proxy.passed)


def test_requests_of_a_further_table_are_fixed(s3: S3, proxy: Proxy, tmp_path: Path) -> None:
    """An overwrite needs the most requests: it lists old files, and a second run deletes them."""
    runs = {}
    for tables in (3, 11):
        lake = RemoteLake(s3, proxy, tmp_path)
        messages = sent(tables, **{"x-replication-method": "FULL_TABLE"})
        runs[tables] = lake.requests(messages), lake.requests(messages)
    for run, most in enumerate((20, 14)):
        few, many = (sum(runs[tables][run].values()) for tables in (3, 11))
        assert (many - few) / 8 <= most, (run, runs)


def test_one_listing_checks_all_table_locations(s3: S3, proxy: Proxy) -> None:
    storage = Storage(s3.new_bucket(), {**s3.storage_options, "endpoint_url": proxy.endpoint})
    records = {
        f"raw/t{number:03d}": TableRecord("numbers", f"t{number:03d}") for number in range(20)
    }
    proxy.passed.clear()

    claims = claim_all(storage, Layout("numbers"), records, "20260101T000000000000Z-0")

    assert {claim.claimed_by for claim in claims.values()} == {"20260101T000000000000Z-0"}
    asked = Counter(request.method for request in proxy.passed)
    # Each is looked for and made; the listing is the one more.
    assert asked == {"GET": 20 + 1, "PUT": 20}


def test_new_table_inside_another_is_refused(tmp_path: Path) -> None:
    storage, layout = Storage(str(tmp_path)), Layout("numbers")
    records = {"raw/a": TableRecord("numbers", "a"), "raw/a/b": TableRecord("numbers", "b")}
    with pytest.raises(Exception, match=r"LAKE-050 .*raw/a/b"):
        claim_all(storage, layout, records, "20260101T000000000000Z-0")
    # Beside each other they may.
    claim_all(storage, layout, {"raw/ab": TableRecord("numbers", "ab")}, "20260101T000000000000Z-1")


def test_small_tables_are_staged_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are staged while later ones are read, and a checkpoint lists them."""
    lake, tables = Lake(tmp_path), 3 * batches.MANY_OPEN
    open_ones: list[int] = []
    add = batches.Batches.add

    def watched(self: Any, lines: Any) -> None:
        add(self, lines)
        open_ones.append(len(self._open))

    monkeypatch.setattr(batches.Batches, "add", watched)
    body = sent(tables)
    dead = lake.announced(body)[:-1]
    with pytest.raises(Exception, match="LAKE-005"):
        lake.load(*dead)
    assert max(open_ones) == batches.MANY_OPEN

    kept = lake.checkpoint()
    assert kept is not None
    assert len(kept.target["streams"]) == tables
    lake.load(*lake.announced(body))
    for number in range(tables):
        stream = f"t{number:03d}"
        assert lake.rows(stream, "id, v") == [(n, f"{stream} {n}") for n in range(3)]
