"""Folders that a store has as objects: Hadoop's markers, and the real folders of an Azure account
with a hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from servers.azure import AzureStore
from singer_spark.store.bucket import Bucket, Entry
from singer_spark.store.object_files import ObjectFiles
from singer_spark.store.storage import Storage


class Hierarchy:
    """An account in which a file's folders come with it, stay behind it, and are removed only when
    they are empty.
    """

    conditions = ("If-None-Match", "If-Match")
    folders_are_listed = False

    def __init__(self, *files: str) -> None:
        self.files = dict.fromkeys(files, 1)
        self.folders = {above for key in files for above in self.above(key)}

    def above(self, key: str) -> set[str]:
        parts = key.split("/")[:-1]
        return {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}

    def entries(self, prefix: str) -> Iterator[Entry]:
        found = {**self.files, **dict.fromkeys(self.folders, 0)}
        for key in sorted(found):
            if key.startswith(prefix):
                yield Entry(key, found[key], None, maybe_folder=found[key] == 0)

    def is_folder(self, key: str) -> bool:
        if key not in self.files and key not in self.folders:
            raise FileNotFoundError(key)
        return key in self.folders

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            name = key.rstrip("/")
            if any(each.startswith(f"{name}/") for each in (*self.files, *self.folders)):
                assert key.endswith("/"), (
                    f"{key} is a folder that is not empty: 409 DirectoryIsNotEmpty"
                )
                continue
            self.files.pop(name, None)
            self.folders.discard(name)


def opened(*files: str) -> tuple[ObjectFiles, Hierarchy]:
    account = Hierarchy(*files)
    return ObjectFiles(cast("Bucket", account), "lake", "az"), account


def test_real_folder_is_removed_after_its_content() -> None:
    """A real folder is not listed as a file."""
    files, account = opened(
        "lake/staging/run/a/b/1", "lake/staging/run/a/2", "lake/staging/runner/3", "lake/raw/t/4"
    )
    assert [each.path for each in files.list("staging/run")] == [
        "staging/run/a/2",
        "staging/run/a/b/1",
    ]
    files.delete_all("staging/run")
    assert sorted(account.files) == ["lake/raw/t/4", "lake/staging/runner/3"]
    assert account.folders == {
        "lake",
        "lake/raw",
        "lake/raw/t",
        "lake/staging",
        "lake/staging/runner",
    }


def test_only_empty_real_folders_are_removed() -> None:
    files, account = opened("lake/staging/a/b/1", "lake/staging/c/2")
    account.delete(["lake/staging/a/b/1"])
    files.remove_empty(["staging/a/b", "staging/a", "staging/c"])
    assert account.folders == {"lake", "lake/staging", "lake/staging/c"}


def put(storage: Storage, key: str, **metadata: str) -> None:
    import obstore

    bucket: Any = storage.files.bucket
    obstore.put(bucket._store, key, b"", attributes=metadata or None)


def test_azure_s_markers_of_folders_are_no_files(azure: AzureStore) -> None:
    storage = Storage(azure.new_bucket(), azure.storage_options)
    for folder in ("raw", "raw/t", "raw/empty", "staging/run", "staging/run/a"):
        put(storage, folder, hdi_isfolder="true")
    put(storage, "raw/t/an empty file")
    for path in ("raw/t/1", "staging/run/a/2"):
        storage.replace(path, b"x")
    assert [file.path for file in storage.list("raw")] == ["raw/t/1", "raw/t/an empty file"]
    storage.delete_all("staging/run")
    storage.remove_empty(["raw/empty", "raw/t", "raw/none"])
    assert azure.keys(storage.url) == ["raw", "raw/t", "raw/t/1", "raw/t/an empty file"]
