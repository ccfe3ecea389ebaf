"""Copy an object on S3 in parts, with bytes appended, inside the store.

The object itself is not transferred. obstore does not copy parts, so this uses botocore, loaded
when first needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from singer_spark.store.storage_errors import MissingError, StoreFailure

# The least size of every part of an upload except the last one.
LEAST_PART_BYTES = 5 << 20
# The store copies up to 5 GiB in one request, and is faster with several at once.
COPY_BYTES = 1 << 30


def copy_and_append(
    client: Any, bucket: str, source: str, size: int, tail: bytes, target: str
) -> None:
    """Copy an object of at least `LEAST_PART_BYTES`, with bytes appended.

    It appears completely or not at all.
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
