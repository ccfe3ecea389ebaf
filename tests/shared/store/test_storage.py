"""Storage: the same few promises on a local disk and on S3."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.s3 import S3
from singer_spark.errors import ConfigurationError, StorageError, redact
from singer_spark.store.bucket import NoLoginError, UnreachableError
from singer_spark.store.storage import Storage, open_url


@pytest.fixture(params=["disk", "s3", "google", "azure"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "disk":
        return Storage(f"{tmp_path}/lake")
    server: S3 | GoogleStore | AzureStore = request.getfixturevalue(request.param)
    return Storage(f"{server.new_bucket()}/some/prefix", server.storage_options)


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [file.path for file in storage.list(prefix)]


def test_missing_object_is_none_and_empty(storage: Storage) -> None:
    assert storage.read("a/b") is None
    assert storage.size("a/b") is None
    assert not storage.exists("a/b")
    assert storage.list("a") == []
    storage.delete("a/b")
    storage.delete_all("a")


def test_create_keeps_existing_object(storage: Storage) -> None:
    assert storage.create("a/b", b"mine")
    assert not storage.create("a/b", b"another's")
    assert storage.read("a/b") == b"mine"


def test_repeated_create_counts_as_the_first(storage: Storage) -> None:
    """Creating again with the same bytes counts as the lost answer to the first attempt."""
    assert storage.create("a/b", b"mine")
    assert storage.create("a/b", b"mine")


def test_of_many_creators_at_once_exactly_one_wins(storage: Storage) -> None:
    barrier, winners = threading.Barrier(8), []

    def create(number: int) -> None:
        barrier.wait()
        if storage.create("lock", b"%d" % number):
            winners.append(number)

    rivals = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert len(winners) == 1
    assert storage.read("lock") == b"%d" % winners[0]


def test_replace_writes_over(storage: Storage) -> None:
    storage.replace("a/b", b"old and long")
    storage.replace("a/b", b"new")
    assert storage.read("a/b") == b"new"
    assert storage.size("a/b") == 3


def test_exchange_replaces_only_expected_content(storage: Storage) -> None:
    assert storage.exchange("state", None, b"1")
    assert not storage.exchange("state", None, b"2")
    assert storage.exchange("state", b"1", b"2")
    assert not storage.exchange("state", b"1", b"3")
    assert storage.read("state") == b"2"
    assert storage.exchange("state", b"1", b"2"), "an earlier answer got lost"


def test_exchange_does_not_restore_removed_object(storage: Storage) -> None:
    storage.replace("state", b"1")
    storage.delete("state")
    assert not storage.exchange("state", b"1", b"2")
    assert storage.read("state") is None


def test_of_many_exchanges_at_once_exactly_one_wins(storage: Storage) -> None:
    storage.replace("state", b"start")
    barrier, winners = threading.Barrier(8), []

    def exchange(number: int) -> None:
        barrier.wait()
        if storage.exchange("state", b"start", b"%d" % number):
            winners.append(number)

    rivals = [threading.Thread(target=exchange, args=(number,)) for number in range(8)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert len(winners) == 1
    assert storage.read("state") == b"%d" % winners[0]


def test_upload_replaces_existing_object(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "rows"
    for content in (b"rows", b"other rows"):
        source.write_bytes(content)
        storage.upload(source, "staging/a%20b/part")
        assert storage.read("staging/a%20b/part") == content
    with pytest.raises(StorageError, match=r"RUN-052 .*staging/none"):
        storage.upload(tmp_path / "none", "staging/none")


def test_extend_keeps_its_source_unchanged(storage: Storage) -> None:
    storage.replace("raw/a%20b/part", b"rows")
    for tail in (b" and", b" more"):
        storage.extend("raw/a%20b/part", tail, "staging/a%20b/part")
        assert storage.read("staging/a%20b/part") == b"rows" + tail
    assert storage.read("raw/a%20b/part") == b"rows"
    with pytest.raises(StorageError, match=r"RUN-052 .*staging/none"):
        storage.extend("raw/none", b"x", "staging/none")


def test_move_may_be_repeated(storage: Storage) -> None:
    storage.replace("staging/a%20b/part", b"rows")
    storage.move("staging/a%20b/part", "raw/a%20b/final")
    storage.move("staging/a%20b/part", "raw/a%20b/final")
    assert paths(storage) == ["raw/a%20b/final"]
    assert storage.read("raw/a%20b/final") == b"rows"


def test_move_without_source_and_target_fails(storage: Storage) -> None:
    with pytest.raises(StorageError, match=r"RUN-052 .*staging/part.*raw/final"):
        storage.move("staging/part", "raw/final")


def test_list_is_recursive_sorted_and_sized(storage: Storage) -> None:
    for path in ("t/b", "t/day=1/a", "t/a", "tt/x"):
        storage.replace(path, path.encode())
    assert [(file.path, file.size) for file in storage.list("t")] == [
        ("t/a", 3),
        ("t/b", 3),
        ("t/day=1/a", 9),
    ]
    storage.delete_all("t")
    assert paths(storage) == ["tt/x"]


def test_flush_accepts_existing_objects(storage: Storage) -> None:
    storage.replace("t/a", b"1")
    storage.flush(["t/a"])
    assert storage.read("t/a") == b"1"


def test_unreachable_s3_is_one_clear_error() -> None:
    options = {
        "endpoint_url": "http://127.0.0.1:9",
        "key": "someone",
        "secret": "hush-hush-1",
        "config_kwargs": FAST,
    }
    with pytest.raises(StorageError, match=r"RUN-052 .*s3://lake/a.*127\.0\.0\.1:9"):
        Storage("s3://lake", options).read("a")
    assert redact("hush-hush-1") != "hush-hush-1"


def test_silent_store_is_unreachable(
    deaf_server: str,
) -> None:
    """A store that accepts connections but gives no answer is unreachable."""
    options = {
        "endpoint_url": deaf_server,
        "key": "someone",
        "secret": "hush-hush-2",
        "config_kwargs": FAST,
    }
    with pytest.raises(StorageError) as reported:
        Storage("s3://lake", options).read("a")
    assert isinstance(reported.value.__cause__, UnreachableError)


def test_missing_keys_are_reported_as_login_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error does not name the cloud machine's metadata address."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(StorageError) as reported:
        Storage("s3://lake", {"endpoint_url": "http://127.0.0.1:9", "config_kwargs": FAST}).read(
            "a"
        )
    assert isinstance(reported.value.__cause__, NoLoginError)
    assert "169.254" not in str(reported.value)


FAST = {"connect_timeout": 1, "retries": {"total_max_attempts": 1}}


def test_missing_bucket_is_an_error(
    store: S3 | GoogleStore | AzureStore,
) -> None:
    """A bucket that does not exist is an error, not an empty bucket."""
    protocol = store.new_bucket().partition("://")[0]
    storage = Storage(f"{protocol}://nobody-made-this", store.storage_options)
    for look in (
        lambda: storage.read("a"),
        lambda: storage.size("a"),
        lambda: storage.create("a", b"1"),
    ):
        with pytest.raises(StorageError, match="RUN-052"):
            look()


def test_file_as_bucket_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(StorageError, match="RUN-052"):
        Storage(f"{tmp_path}/lake").create("a", b"1")


@pytest.mark.parametrize("url", ["", "nosuch://lake/x"])
def test_unknown_url_scheme_is_config_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Storage(url)


def test_local_url_spellings_are_equivalent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spellings = (
        f"{tmp_path}/my lake",
        f"file://{tmp_path}/my lake",
        f"file:{tmp_path}/my lake",
        "my lake",
        "./my lake/",
    )
    assert {Storage(url).url for url in spellings} == {f"{tmp_path}/my lake"}
    assert Storage("my lake").url_for_spark("raw/a%20b") == f"file://{tmp_path}/my lake/raw/a%20b"


def test_open_url_finds_lake_of_file(tmp_path: Path) -> None:
    storage, path = open_url(f"{tmp_path}/lake/.dataspoc/state/p/state.json")
    assert (storage.url, path) == (f"{tmp_path}/lake", ".dataspoc/state/p/state.json")
    storage, path = open_url(f"{tmp_path}/state.json")
    assert (storage.url, path) == (str(tmp_path), "state.json")


def test_readers_see_whole_content_during_replace(storage: Storage) -> None:
    contents = {bytes([65 + number]) * 20_000 for number in range(4)}
    storage.replace("a", min(contents))
    over = threading.Event()

    def write() -> None:
        for _ in range(10):
            for content in contents:
                storage.replace("a", content)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    met = [storage.read("a")]
    while not over.is_set():
        met.append(storage.read("a"))
    writer.join()
    assert set(met) <= contents


def test_removing_a_folder_still_being_filled(tmp_path: Path) -> None:
    """Spark's executors may outlive their run for a moment."""
    storage = Storage(str(tmp_path))
    folder = tmp_path / "staging/run"
    folder.mkdir(parents=True)
    over = threading.Event()

    def fill() -> None:
        number = 0
        while not over.is_set():
            number += 1
            # pathlib's own mkdir takes a folder that vanishes meanwhile for a file.
            with suppress(FileNotFoundError, FileExistsError):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / str(number)).touch()

    orphan = threading.Thread(target=fill)
    orphan.start()
    try:
        for _ in range(200):
            storage.delete_all("staging")
    finally:
        over.set()
        orphan.join()
    storage.delete_all("staging")
    assert storage.list("staging") == []
