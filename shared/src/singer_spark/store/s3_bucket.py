"""A bucket on S3, or a compatible store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

from singer_spark.store.obstore_bucket import ObstoreBucket, client_options, patiently, retry_config
from singer_spark.store.s3_account import S3Account
from singer_spark.store.storage_errors import MissingError, StoreFailure

TOO_LARGE_CODES = ("EntityTooLarge", "InvalidRequest")
# The least size of every part of an upload except the last one.
LEAST_PART_BYTES = 5 << 20
# The store copies up to 5 GiB in one request, and is faster with several at once.
COPY_BYTES = 1 << 30


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
        if size < LEAST_PART_BYTES:
            return False
        patiently(
            lambda: copy_and_append(self._account.client(), self._name, source, size, tail, target),
            source,
        )
        return True


def copy_and_append(
    client: Any, bucket: str, source: str, size: int, tail: bytes, target: str
) -> None:
    """Copy an object of at least `LEAST_PART_BYTES` in parts inside the store, with bytes appended.

    It appears completely or not at all. obstore does not copy parts, so this uses botocore.
    """
    here = {"Bucket": bucket, "Key": target}
    with _failures():
        upload = {**here, "UploadId": client.create_multipart_upload(**here)["UploadId"]}
        copy = partial(
            client.upload_part_copy, **upload, CopySource={"Bucket": bucket, "Key": source}
        )
        try:
            parts = [
                copy(PartNumber=number, CopySourceRange=f"bytes={start}-{end - 1}")[
                    "CopyPartResult"
                ]
                for number, (start, end) in enumerate(_ranges(size), 1)
            ]
            if tail:
                parts.append(client.upload_part(**upload, PartNumber=len(parts) + 1, Body=tail))
            whole = [
                {"PartNumber": number, "ETag": part["ETag"]} for number, part in enumerate(parts, 1)
            ]
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": whole})
        except BaseException:
            with suppress(Exception):
                client.abort_multipart_upload(**upload)
            raise


def _ranges(size: int) -> list[tuple[int, int]]:
    """Equal parts of at most `COPY_BYTES`."""
    number = -(-size // COPY_BYTES)
    return [(size * part // number, size * (part + 1) // number) for part in range(number)]


@contextmanager
def _failures() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        kind = (
            MissingError if code in ("NoSuchKey", "NoSuchBucket", "NoSuchUpload") else StoreFailure
        )
        raise kind(str(error), code) from error
    except BotoCoreError as error:
        raise StoreFailure(str(error), "") from error
