"""Invalid records that are quarantined: the good ones arrive, the others are kept as they came,
with the reason.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from servers.s3 import S3
from singer_spark.errors import ProtocolError, RecordError
from target.loading import JSON, Lake, record, schema, state, to_bytes
from target_spark_lake.ops import spark_lake

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
TAGS = {"type": "array", "items": INT}
ADDRESS = {"type": ["object", "null"], "properties": {"zip": {"type": "integer"}, "tags": TAGS}}
PRICE = {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(6,2)"}
PERSON = {"id": {"type": "integer"}, "name": TEXT, "price": PRICE}


class QuarantiningLake(Lake):
    """A lake that keeps invalid records apart."""

    def listen(self, source: Any, **settings: Any) -> None:
        super().listen(source, **{"on_invalid_record": "quarantine", **settings})

    def rejected_files(self) -> list[Path]:
        return sorted((self.folder / ".dataspoc/rejected").rglob("*"))

    def rejected(self, stream: str = "s") -> list[JSON]:
        """All rejected records of a stream, of all runs in their order."""
        paths = sorted((self.folder / ".dataspoc/rejected/test").glob(f"*/{stream}.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]

    def reports(self, capsys: pytest.CaptureFixture[str]) -> list[JSON]:
        config = self.folder.parent / "target.json"
        config.write_text(json.dumps({"bucket": str(self.folder), "pipeline": "test"}))
        capsys.readouterr()
        assert spark_lake.command(["runs", "--config", str(config), "--json"]) == 0
        return list(json.loads(capsys.readouterr().out))


@pytest.fixture
def lake(spark: object, tmp_path: Path) -> QuarantiningLake:
    return QuarantiningLake(tmp_path / "lake")


def line(text: str, stream: str = "s") -> bytes:
    return b'{"type": "RECORD", "stream": "%s", "record": %s}\n' % (stream.encode(), text.encode())


def test_invalid_records_are_quarantined_with_reason(
    lake: QuarantiningLake, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Valid records arrive; invalid ones are quarantined with their path and reason."""
    began = datetime.now(UTC)
    people = [record("s", id=n, name=f"n{n}") for n in range(40)]
    invalid = [
        line('{"id": "x", "name": "a"}'),
        line('{"name": "no id"}'),
        line('{"id": 7, "price": 1.239}'),
    ]
    with caplog.at_level(logging.WARNING):
        lake.load(schema("s", PERSON, ("id",)), *people[:20], *invalid, *people[20:], state(n=40))
    assert lake.rows("s", "id, name") == [(n, f"n{n}") for n in range(40)]
    found = {each["path"]: each for each in lake.rejected()}
    assert {path: each["record"] for path, each in found.items()} == {
        "/id": {"id": "x", "name": "a"},
        "": {"name": "no id"},
        "/price": {"id": 7, "price": 1.239},
    }
    assert all(list(each) == ["record", "error", "path", "received_at"] for each in found.values())
    assert found["/id"]["error"] == "'x' is not of type 'integer'"
    assert "lacks its key property id" in found[""]["error"]
    assert "2 digits behind the point" in found["/price"]["error"]
    assert all(
        began <= datetime.fromisoformat(each["received_at"]) <= datetime.now(UTC)
        for each in found.values()
    )
    assert lake.state() == {"n": 40}
    assert "Done! 40 records in 1 stream(s)" in capsys.readouterr().err
    (path,) = [path for path in lake.rejected_files() if path.is_file()]
    assert [each.message for each in caplog.records if each.levelno == logging.WARNING] == [
        f"stream s: 3 invalid record(s) rejected, kept with the reason in {path}"
    ]
    (report,) = lake.reports(capsys)
    assert path == lake.folder / f".dataspoc/rejected/test/{report['run_id']}/s.jsonl"
    assert (report["streams"]["s"]["records"], report["streams"]["s"]["rejected"]) == (40, 3)


def test_rejected_record_is_kept_verbatim(lake: QuarantiningLake) -> None:
    """Numbers keep all digits; members keep their order, even repeated or unknown ones."""
    texts = [
        '{"id": 12345678901234567890123456789.10, "name": "\\u00e9 \\"}{\\\\", "z": 1e-400, "a": '
        '[0.10, {"b": 1E+2}]}',
        '{ "id" :  null, "name": "a", "name": 5 }',
    ]
    last = (
        b'{"type": "RECORD", "record": {"name": [1.50]}, "stream": "s", "time_extracted": '
        b'"2026-01-01T00:00:00Z"}\n'
    )
    lake.load(schema("s", PERSON), *(line(text) for text in texts), last, record("s", id=1))
    (path,) = [path for path in lake.rejected_files() if path.is_file()]
    kept = [
        each.removeprefix('{"record": ').partition(', "error": ')[0]
        for each in path.read_text().splitlines()
    ]
    assert kept == [*texts, '{"name": [1.50]}']


PLACES = [
    ({"address": ADDRESS}, '{"address": {"zip": "x"}}', "/address/zip"),
    ({"address": ADDRESS}, '{"address": {"zip": 9223372036854775808}}', "/address/zip"),
    ({"address": ADDRESS}, '{"address": {"tags": [1, 2, 9223372036854775808]}}', "/address/tags/2"),
    ({"a/b~c": {"type": "integer"}}, '{"a/b~c": "x"}', "/a~1b~0c"),
    ({"kind": {"type": "string", "enum": ["a"]}}, '{"kind": "b"}', "/kind"),
    ({"id": {"type": "integer"}}, '{"id": 1, "more": 2}', ""),
    (
        {"at": {"type": "string", "format": "date-time"}},
        '{"at": "2025-01-01T00:00:00+19:00"}',
        "/at",
    ),
]


def test_rejected_path_is_json_pointer(lake: QuarantiningLake) -> None:
    lines: list[JSON | bytes] = []
    for number, (properties, text, _) in enumerate(PLACES):
        lines += [
            schema(f"s{number}", properties, additionalProperties=False),
            line(text, f"s{number}"),
        ]
    lake.load(*lines)
    found = [each["path"] for number in range(len(PLACES)) for each in lake.rejected(f"s{number}")]
    assert found == [path for _, _, path in PLACES]


def test_invalid_json_still_fails_run(lake: QuarantiningLake) -> None:
    for broken in (b'{"a": "\xff"}', b'{"a": 1'):
        text = b'{"type": "RECORD", "stream": "s", "record": ' + broken + b"}\n"
        with pytest.raises(ProtocolError, match="LAKE-001"):
            lake.load(
                schema("s", {"a": TEXT}),
                line('{"a": 5}'),
                line('{"a": "x"}'),
                text,
                line('{"a": "x"}'),
            )
    assert lake.files() == lake.rejected_files() == []


def test_batch_of_only_invalid_records_changes_nothing(
    lake: QuarantiningLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch of only invalid records leaves the table unchanged."""
    methods = ("append-only", "append-dedup", "overwrite-delete-stale", "overwrite")
    messages = {
        method: schema(method, PERSON, ("id",), **{"x-load-method": method}) for method in methods
    }
    lake.load(
        *(
            each
            for method in methods
            for each in (messages[method], record(method, id=1), record(method, id=2))
        )
    )
    invalid = [
        [messages[method], *(record(method, id=None, name=str(n)) for n in range(5))]
        for method in methods
    ]
    lake.load(*(message for each in invalid for message in each))
    streams = lake.reports(capsys)[0]["streams"]
    for method in methods:
        # What an overwritten table holds are the valid records of the last run: none.
        assert lake.rows(method, "id") == ([] if method == "overwrite" else [(1,), (2,)])
        assert len(lake.rejected(method)) == 5
        assert (streams[method]["records"], streams[method]["rejected"]) == (0, 5)


@pytest.mark.parametrize("method", ["append-dedup", "overwrite-delete-stale"])
def test_rejected_record_does_not_affect_merge(lake: QuarantiningLake, method: str) -> None:
    """Neither its key nor its cursor counts, and rows not seen in the run are not stale."""
    message = schema("s", {**PERSON, "at": INT}, ("id",), **{"x-load-method": method})
    lake.load(message, *(record("s", id=n, at=1, name="old") for n in range(4)))
    changes = [
        record("s", id=0, at=9, name=5),
        record("s", id=0, at=2, name="new"),
        record("s", id=None, at=3),
    ]
    lake.load(message, *changes, record("s", id=3, at="x"), record("s", id=9, at=1, name="new"))
    wanted = [(0, "new"), (1, "old"), (2, "old"), (3, "old"), (9, "new")]
    assert lake.rows("s", "id, name") == wanted
    assert [each["path"] for each in lake.rejected()] == ["/name", "/id", "/at"]
    if method == "append-dedup":
        assert len(lake.rows("s__history")) == 6


def test_too_many_invalid_records_fail_before_commit(
    lake: QuarantiningLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """All streams of a run count together."""
    body = [
        *(schema(stream, PERSON) for stream in ("s", "t")),
        *(record(stream, id="x", name=str(n)) for n in range(2) for stream in ("s", "t")),
        *(record(stream, id=1) for stream in ("s", "t")),
        state(n=1),
    ]
    for limit in (0, 3):
        with pytest.raises(
            RecordError,
            match=rf"LAKE-022 .*{limit}.*max_invalid_records|LAKE-020",
        ):
            lake.load(*body, max_invalid_records=limit)
        # The other stream's batch may come to its end after the failure; its staged file is the
        # next run's to clear.
        assert [name for name in lake.files() if "/staging/" not in name] == []
        assert [path for path in lake.rejected_files() if path.is_file()] == []
        assert lake.reports(capsys)[0]["outcome"] == "failed"
    lake.load(*body, max_invalid_records=4)
    assert lake.rows("s", "id") == lake.rows("t", "id") == [(1,)]
    assert len(lake.rejected("s")) == len(lake.rejected("t")) == 2
    lake.load(schema("s", PERSON), record("s", id=2), max_invalid_records=0)


def test_quarantine_file_per_stream_keeps_input_order(
    lake: QuarantiningLake,
) -> None:
    """A name that no file could have is encoded as its table's folder is."""
    wide, narrow = schema("a/b", {"id": INT, "more": INT}), schema("a/b", {"id": INT})
    parts = [
        [message, record("a/b", id=n), record("a/b", id=str(n))]
        for n, message in enumerate((wide, narrow) * 3)
    ]
    lake.load(*(message for part in parts for message in part))
    assert [path.name for path in lake.rejected_files() if path.is_file()] == ["a%2Fb.jsonl"]
    assert [each["record"]["id"] for each in lake.rejected("a%2Fb")] == [str(n) for n in range(6)]
    assert lake.rows("a%2Fb", "id") == [(n,) for n in range(6)]


def test_unvalidated_rejects_only_unstorable_values(
    lake: QuarantiningLake,
) -> None:
    """Without validation, only values that no column can hold are rejected."""
    texts = ['{"id": 1, "name": 5}', '{"id": "x"}']
    lake.load(schema("s", PERSON), *map(line, texts), validate_records=False)
    assert lake.rows("s", "id, name") == [(1, "5")]
    assert [each["path"] for each in lake.rejected()] == ["/id"]


@pytest.mark.usefixtures("checkpoints_at_once")
def test_resumed_run_publishes_rejected_records_once(
    lake: QuarantiningLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run publishes the records that the dead one had rejected, once."""
    grows = schema("grows", {"id": INT, "name": TEXT}, **{"x-replication-method": "INCREMENTAL"})
    body = [grows]
    for n in range(6):
        body += [record("grows", id=n), record("grows", id=n, name=n), state(grows=n)]
    for dies_after in (8, 13):
        with pytest.raises(ProtocolError, match="LAKE-005"):
            lake.load(*lake.announced(body)[:dies_after])
        assert [path for path in lake.rejected_files() if path.is_file()] == []
    lines = lake.announced(body)
    assert lines[0]["start"] == "resume"
    with pytest.raises(RecordError, match="LAKE-022"):
        lake.load(*lines, max_invalid_records=3)
    lake.load(*lake.announced(body), max_invalid_records=6)
    assert lake.rows("grows", "id") == [(n,) for n in range(6)]
    assert [each["record"]["name"] for each in lake.rejected("grows")] == list(range(6))
    report = lake.reports(capsys)[0]["streams"]["grows"]
    assert (report["records"], report["rejected"]) == (6, 6)
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]


@pytest.mark.usefixtures("checkpoints_at_once")
def test_changed_on_invalid_record_refuses_resume(lake: QuarantiningLake) -> None:
    grows = schema("grows", {"id": INT}, **{"x-replication-method": "INCREMENTAL"})
    body = [
        grows,
        *(record("grows", id=n) for n in (1, "x")),
        state(grows=1),
        record("grows", id=2),
        state(grows=2),
    ]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lake.announced(body)[:5])
    with pytest.raises(Exception, match=r"LAKE-064 .*on_invalid_record"):
        lake.load(to_bytes(*lake.announced(body)), on_invalid_record="fail")
    lake.load(*lake.announced(body))
    assert [each["record"] for each in lake.rejected("grows")] == [{"id": "x"}]
    assert lake.rows("grows", "id") == [(1,), (2,)]


def test_rejected_records_are_stored_in_s3_bucket(spark: object, s3: S3, tmp_path: Path) -> None:
    """Rejected records from batches of two schemas are stored in one object."""
    bucket = f"{s3.new_bucket()}/some lake"
    lake = QuarantiningLake(tmp_path / "none")
    for n in range(2):
        parts = [
            schema("s", {"id": INT, "more": INT}),
            record("s", id="x"),
            record("s", id=n),
            schema("s", {"id": INT}),
        ]
        lake.load(
            *parts,
            record("s", id="y"),
            state(n=n),
            bucket=bucket,
            storage_options=s3.storage_options,
        )
    files = s3.filesystem()
    paths = sorted(files.glob(f"{bucket}/.dataspoc/rejected/test/*/s.jsonl"))
    kept = [[json.loads(line)["record"] for line in files.cat(path).splitlines()] for path in paths]
    assert kept == [[{"id": "x"}, {"id": "y"}]] * 2
    assert len(files.glob(f"{bucket}/raw/s/*.parquet")) == 2
    assert not files.glob(f"{bucket}/.dataspoc/staging/runs/**/*.*")
