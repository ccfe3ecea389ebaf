"""A bucket on S3, or a compatible store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from singer_spark.store.http_options import client_options, retry_config
from singer_spark.store.obstore_bucket import ObstoreBucket, patiently
from singer_spark.store.s3_account import S3Account
from singer_spark.store.storage_errors import StoreFailure

TOO_LARGE_CODES = ("EntityTooLarge", "InvalidRequest")


class S3Bucket(ObstoreBucket):
    """Objects of a bucket on S3."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Nothing is requested yet; the options are those of s3fs."""
        self._name = name
        self._options = options

    @cached_property
    def _account(self) -> S3Account:
        return S3Account.of(self._options, self._name)

    def _made(self, below: str = "", *, single: bool = False) -> Any:
        from obstore.store import S3Store

        account, bucket = self._account, self._name
        config = account.config() | ({"disable_bulk_delete": True} if single else {})
        if not account.virtual:
            bucket += below
        elif account.endpoint or below:
            config["endpoint"] = account.endpoint_of(bucket) + below
        return S3Store(
            bucket,
            config=config,
            client_options=client_options(
                account.endpoint,
                connect=account.connect,
                read=account.read,
                verify=account.verify,
                proxy=account.proxy,
            ),
            retry_config=retry_config(account.retries),
            credential_provider=account.provider(),
        )

    def copy(self, source: str, target: str) -> None:
        from singer_spark.store.s3_copy import copy_and_append

        try:
            super().copy(source, target)
        except StoreFailure as error:
            # An object too large for one request is copied in parts.
            if error.code not in TOO_LARGE_CODES:
                raise
            size = self.size(source)
            patiently(
                lambda: copy_and_append(
                    self._account.client(), self._name, source, size, b"", target
                ),
                source,
            )

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        from singer_spark.store.s3_copy import LEAST_PART_BYTES, copy_and_append

        if size < LEAST_PART_BYTES:
            return False
        patiently(
            lambda: copy_and_append(self._account.client(), self._name, source, size, tail, target),
            source,
        )
        return True
