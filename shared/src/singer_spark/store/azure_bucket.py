"""A container of Azure Blob Storage."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.store.azure_account import AzureAccount, container_and_host
from singer_spark.store.bucket import UndecidedError
from singer_spark.store.http_options import client_options, retry_config
from singer_spark.store.obstore_bucket import ObstoreBucket, answer_of
from singer_spark.store.storage_errors import StoreFailure

COPY_SECONDS = 600


class AzureBucket(ObstoreBucket):
    """Blobs of a container."""

    folders_are_listed = False

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Nothing is requested yet; the options are those of adlfs."""
        self._account = AzureAccount.of(url, options)
        self._container, _ = container_and_host(url)
        if not self._container:
            raise ConfigurationError(RunCode.BAD_BUCKET, f"{url} names no container")

    def _made(self, below: str = "", *, single: bool = False) -> Any:
        from obstore.store import AzureStore

        account = self._account
        return AzureStore(
            self._container,
            config=account.config(),
            client_options=client_options(
                account.endpoint, connect=account.connect, read=account.read
            ),
            retry_config=retry_config(),
            credential_provider=account.provider(),
        )

    def _remove_folder(self, key: str) -> None:
        """Remove a Hadoop folder: an empty blob with the folder's name, or a real one, which stays
        unless empty.
        """
        with suppress(FileExistsError, UndecidedError, StoreFailure):
            self._remove(self._single, key)

    def is_folder(self, key: str) -> bool:
        import obstore

        found = answer_of(
            lambda: obstore.get(self._store, key, options={"head": True}).attributes, key
        )
        return str(found.get("hdi_isfolder", "")).lower() == "true"

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        # Azure does not support ranges that count from the end.
        size = self.size(key)
        length = min(length, size)
        return (self.read_range(key, size - length, length) if length else b""), size

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, which may answer before the copy is done; until then the blob is
        empty.
        """
        size = self.size(source)
        super().copy(source, target)
        deadline = time.monotonic() + COPY_SECONDS
        pause = 0.05
        while self.size(target) != size:
            if time.monotonic() > deadline:
                raise StoreFailure(
                    f"the copy of {source} is not done after {COPY_SECONDS} s", "CopyPending"
                )
            time.sleep(pause)
            pause = min(2 * pause, 5)
