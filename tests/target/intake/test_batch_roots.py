"""Where BATCH messages may name files, and which files a run removes: those that a message names,
and no other.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from singer_spark.errors import ConfigurationError, ProtocolError
from singer_spark.store.storage import Storage
from target.batch_making import RUN, BatchRun, message
from target.loading import JSON, Lake, record, schema, state
from target_spark_lake.config.batch_roots import OtherBucketError, address_of, shown
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.ops import spark_lake

pytestmark = pytest.mark.usefixtures("without_jvm")

S = schema("s", {"id": {"type": ["integer", "null"]}}, ("id",))
SECRET = "root:x:0:0:hidden"
LINE = b'{"id": 7}\n'


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    lake.load(S, record("s", id=0), state(s=0))
    return lake


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def naming(url: str) -> JSON:
    return {**message("s", "jsonl", []), "encoding": {"format": "jsonl"}, "manifest": [url]}


def texts_of(lake: Lake) -> str:
    """What runs said in journals, states and quarantine."""
    folders = [lake.folder / ".dataspoc" / name for name in ("runs/test", "rejected", "state/test")]
    return "".join(
        path.read_text() for folder in folders for path in folder.rglob("*") if path.is_file()
    )


OUTSIDE = {
    "a path": "{out}/secret.txt",
    "a path with '..'": "{lake}/../secret.txt",
    "a path with two slashes before it": "//{out}/secret.txt",
    "a relative path": "secret.txt",
    "a home": "~/secret.txt",
    "a file URL": "file://{out}/secret.txt",
    "a file URL with one slash": "file:{out}/secret.txt",
    "a file URL with localhost": "file://localhost{out}/secret.txt",
    "a file URL with another host": "file://host{out}/secret.txt",
    "a file URL in capitals": "FILE://{out}/secret.txt",
    "another name of it": "local://{out}/secret.txt",
    "percent signs": "file://{lake}/%2e%2e/secret.txt",
    "percent signs and dots": "file://{lake}/.%2E/secret.txt",
    "an encoded slash": "file://{lake}/..%2fsecret.txt",
    "an encoded name": "file://{out}/%73ecret.txt",
    "a zero byte": "file://{lake}/x%00/../../secret.txt",
    "a plain zero byte": "{lake}/x\x00/../../secret.txt",
    "a line end": "{lake}/x\n/../secret.txt",
    "a link to a file": "{lake}/link.txt",
    "a link to a folder": "file://{lake}/folder/secret.txt",
    "a link in the place of batches": "file://{lake}/.dataspoc/staging/batches/"
    + RUN
    + "/s/000000/part-0.jsonl",
    "a folder whose name goes on": "{lake}-more/secret.txt",
    "http": "http://127.0.0.1:9/secret.txt",
    "https in capitals": "HTTPS://user:pass-word@127.0.0.1:9/secret.txt?token=hidden-token",
    "another bucket": "s3://somewhere/secret.txt",
    "a chain of file systems": "simplecache::file://{out}/secret.txt",
    "an archive": "zip://secret.txt::file://{out}/secret.zip",
    "data": "data:application/json,{{}}",
    "ftp": "ftp://127.0.0.1/secret.txt",
    "its own state": "{lake}/.dataspoc/state/test/state.json",
    "its own state by an encoded name": "file://{lake}/%2edataspoc/state/test/state.json",
    "another lake's state": "{lake}/inner/.dataspoc/state/p/state.json",
    "what a run has staged": "{lake}/.dataspoc/staging/runs/other/"
    + RUN
    + "/s/000000/part-0.jsonl",
    "a folder of the same name in capitals": "{lake}/.DataSpoc/state/test/state.json",
}


def test_file_outside_batch_roots_is_refused_unread(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file outside the batch roots is refused by name and never read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    hidden = [tmp_path / "secret.txt", tmp_path / "lake-more/secret.txt"]
    hidden += [lake.folder / ".dataspoc/staging/runs/other" / RUN / "s/000000/part-0.jsonl"]
    hidden += [
        lake.folder / "inner/.dataspoc/state/p/state.json",
        lake.folder / ".DataSpoc/state/test/state.json",
    ]
    batch = lake.folder / ".dataspoc/staging/batches" / RUN / "s/000000/part-0.jsonl"
    for path in (*hidden, batch):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path in hidden:
        path.write_text(SECRET)
    for link in (lake.folder / "link.txt", batch):
        link.symlink_to(tmp_path / "secret.txt")
    (lake.folder / "folder").symlink_to(tmp_path)
    for name, spelling in OUTSIDE.items():
        url = spelling.format(out=tmp_path, lake=lake.folder)
        with pytest.raises(ProtocolError) as reported:
            lake.load(S, naming(url), state(s=1), on_invalid_record="quarantine")
        text = str(reported.value)
        assert text.startswith("LAKE-013 stream s: batch file "), name
        assert (" is refused: " in text, f"(batch_roots: {lake.folder})" in text, "\n" in text) == (
            True,
            True,
            False,
        )
        assert not any(word in text for word in (SECRET, "pass-word", "hidden-token")), name
    assert not any(word in texts_of(lake) for word in (SECRET, "pass-word", "hidden-token"))
    assert texts_of(lake).count(" is refused: ") == len(OUTSIDE)
    assert (lake.rows("s", "id"), lake.state(), hidden[2].read_text()) == ([(0,)], {"s": 0}, SECRET)


def test_mismatched_tap_bucket_is_reported(lake: Lake, tmp_path: Path) -> None:
    """A batch file in another lake's staging means the tap's config has another bucket."""
    batch = tmp_path / "other lake/.dataspoc/staging/batches/part-0.jsonl"
    batch.parent.mkdir(parents=True)
    batch.write_bytes(LINE)
    for url in (str(batch), batch.as_uri(), "s3://other/.dataspoc/staging/batches/part-0.jsonl"):
        with pytest.raises(OtherBucketError):
            lake.load(S, naming(url), state(s=1))


def test_bucket_is_a_batch_root_only_if_listed(lake: Lake, tmp_path: Path) -> None:
    """Only the listed batch roots count, and the bucket only if it is among them."""
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    for number, path in enumerate((tmp_path / "real/a 1%.jsonl", lake.folder / "in.jsonl"), 1):
        path.write_bytes(LINE.replace(b"7", str(number).encode()))
    roots = [f"file://{tmp_path}/linked"]
    spelled = [str(tmp_path / "real/a 1%.jsonl"), (tmp_path / "linked/a 1%.jsonl").as_uri()]
    for number, url in enumerate(spelled, 1):
        lake.load(S, naming(url), state(s=number), batch_roots=roots)
    assert lake.rows("s", "id") == [(0,), (1,), (1,)]
    with pytest.raises(ProtocolError, match=r"LAKE-013 .*in\.jsonl.*batch_roots"):
        lake.load(S, naming(f"{lake.folder}/in.jsonl"), batch_roots=roots)
    with pytest.raises(ProtocolError, match=r"LAKE-013 .*batch_roots"):
        lake.load(S, naming(spelled[0]), batch_roots=[])
    lake.load(S, naming(f"{lake.folder}/in.jsonl"), batch_roots=[*roots, str(lake.folder)])
    assert lake.rows("s", "id") == [(0,), (1,), (1,), (2,)]


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_non_regular_batch_file_is_refused_at_once(lake: Lake, kind: str) -> None:
    """A folder or a pipe in place of a batch file is refused without waiting for it."""
    place = lake.folder / "in"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    with pytest.raises(ProtocolError, match="LAKE-012"):
        lake.load(S, naming(str(place)))


@pytest.mark.parametrize(
    "root",
    [
        "http://host/x",
        "HTTPS://host",
        "",
        "simplecache::s3://b",
        "s3://",
        "s3://b/../c",
        "file://host/x",
    ],
)
def test_invalid_batch_root_is_a_config_error(root: str) -> None:
    """An invalid batch root is an error before anything is read."""
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*batch_roots"):
        TargetSettings.from_config({"bucket": "b", "pipeline": "p", "batch_roots": [root]})


@pytest.fixture(scope="module")
def buckets(s3: Any) -> tuple[str, str]:
    """One with a lake in it, and another one, with lines at the roots and secrets beside them."""
    bucket, other = s3.new_bucket(), s3.new_bucket()
    for place in (f"{bucket}/lake", f"{other}/a"):
        s3.filesystem().pipe(f"{place}/x.jsonl", LINE)
    for place in (bucket, f"{bucket}/lake-more", other, f"{other}/ab"):
        s3.filesystem().pipe(f"{place}/x.jsonl", SECRET.encode())
    return bucket, other


@pytest.mark.parametrize(
    ("roots", "url", "error"),
    [
        (None, "{bucket}/../{other}/x.jsonl", "'..'"),
        (None, "{bucket}/lake/../x.jsonl", "'..'"),
        (None, "{bucket}/lake/%2e%2E/x.jsonl", "'..'"),
        (None, "{bucket}/lake-more/x.jsonl", "in none of the places"),
        (None, "{bucket}/x.jsonl", "in none of the places"),
        (None, "s3://user@{plain}/lake/x.jsonl", "in none of the places"),
        (None, "{bucket}/lake/x.jsonl?versionId=null", "a version"),
        (None, "{bucket}/lake/.dataspoc/state/test/state.json", "a lake's own folder"),
        (None, "/etc/passwd", "in none of the places"),
        (["{bucket}"], "{bucket}/lake/.dataspoc/state/test/state.json", "a lake's own folder"),
        (["{other}/a"], "{bucket}/lake/x.jsonl", "in none of the places"),
        (["{other}/a"], "{other}/ab/x.jsonl", "in none of the places"),
        (["{other}/a"], "S3A://{plain_other}/a/x.jsonl", None),
        (None, "S3://{plain}/lake/x.jsonl", None),
    ],
)
def test_only_bucket_keys_below_roots_are_read(
    s3: Any,
    buckets: tuple[str, str],
    tmp_path: Path,
    roots: list[str] | None,
    url: str,
    error: str | None,
) -> None:
    bucket, other = buckets
    names = {"bucket": bucket, "other": other, "plain": bucket[5:], "plain_other": other[5:]}
    files, lake = s3.filesystem(), Lake(tmp_path)
    settings: JSON = {"bucket": f"{bucket}/lake", "storage_options": s3.storage_options}
    if roots is not None:
        settings["batch_roots"] = [root.format(**names) for root in roots]
    written, journals = f"{bucket}/lake/raw/s/*.parquet", f"{bucket}/lake/.dataspoc/runs/test/*"
    before = {*files.glob(written), *files.glob(journals)}
    if error is None:
        lake.load(S, naming(url.format(**names)), state(s=1), **settings)
        assert set(files.glob(written)) - before
        return
    with pytest.raises(ProtocolError, match=rf"LAKE-013 .*{error}") as reported:
        lake.load(S, naming(url.format(**names)), state(s=1), **settings)
    (journal,) = set(files.glob(journals)) - before
    assert "refused" in files.cat(journal).decode()
    assert SECRET not in str(reported.value) + files.cat(journal).decode()


def test_addresses_are_shown_without_secrets() -> None:
    """A shown address is one short line."""
    assert shown("https://me:hidden@host/x?sig=hidden") == "https://*****@host/x"
    assert shown("/a\nb") == "/a?b"
    assert len(shown("/" + "x" * 5000)) < 400
    assert address_of("gcs://b/k") == address_of("GS://b/k")


def neighbours(folder: Path) -> list[Path]:
    """Files that no message names: beside a named one, in other folders of a tap's run, and around
    it.
    """
    paths = [
        folder / "s/000000/part-other.jsonl",
        folder / "s/000000/keep.txt",
        folder / "t/000000/part-0.jsonl",
    ]
    paths += [folder / "keep.txt", folder.parent / "keep.txt"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)
    return paths


@pytest.mark.parametrize("place", ["in the place of batches", "elsewhere in the bucket", "outside"])
@pytest.mark.parametrize("kind", ["jsonl", "adopted"])
def test_run_removes_only_batch_files_it_was_sent(
    lake: Lake, tmp_path: Path, place: str, kind: str
) -> None:
    """A run removes only the files of a batch folder that a message named."""
    tap = BatchRun(lake.folder, f"x-{RUN}")
    if place != "in the place of batches":
        tap.folder = (
            lake.folder if place == "elsewhere in the bucket" else tmp_path
        ) / f"neighbour-{RUN}"
    named = tap.lines("s", [{"id": 1}]) if kind == "jsonl" else tap.parquet("s", numbers(1))
    around = neighbours(tap.folder)
    lake.load(S, named, state(s=1), batch_roots=[str(tmp_path)])
    assert lake.rows("s", "id") == [(0,), (1,)]
    assert not tap.files[0].exists()
    assert [path for path in around if not path.exists()] == []


@pytest.mark.parametrize("folder", [f"x-{RUN}/a/b", f"{RUN}/s/000000", "raw/s"])
def test_batch_file_with_unusual_name_is_read_and_kept(lake: Lake, folder: str) -> None:
    """A file not named exactly like a tap's batch is read and kept."""
    path = lake.folder / folder / "data.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(LINE)
    around = neighbours(path.parent.parent.parent) if folder != "raw/s" else []
    lake.load(S, naming(str(path)), state(s=1))
    assert lake.rows("s", "id") == [(0,), (7,)]
    assert [each for each in (path, *around) if not each.exists()] == []


def test_recover_keeps_batch_files_written_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tap that slept for a day writes on while another run looks: what it writes now stays."""
    tap = BatchRun(lake.folder)
    tap.parquet("s", numbers(1))
    old = time.time() - 25 * 60 * 60
    os.utime(tap.files[0], (old, old))
    new = tap.folder / "s/000001/part-0.parquet"

    def wakes_up(run_storage: Any, prefix: str, listed: Any = Storage.list) -> Any:
        found = listed(run_storage, prefix)
        if prefix.endswith("/batches"):
            new.parent.mkdir(parents=True)
            new.write_bytes(b"new")
        return found

    monkeypatch.setattr("singer_spark.store.storage.Storage.list", wakes_up)
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    assert spark_lake.command(["recover", "--config", str(config), "--json"]) == 0
    assert (tap.files[0].exists(), new.read_bytes()) == (False, b"new")
