"""A copy of an object on S3 with more bytes behind it, made inside the store: nothing of the object is transferred."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

# Every part of an upload but the last one must have as much.
LEAST_PART_BYTES = 5 << 20
# The store takes 5 GiB in one request, and more quickly several at once.
COPY_BYTES = 1 << 30


def copy_and_append(filesystem: Any, source: str, size: int, tail: bytes, target: str) -> None:
    """Copies an object of at least `LEAST_PART_BYTES`, with bytes behind it; it appears whole or not at all."""
    from_bucket, from_key, _ = filesystem.split_path(source)
    bucket, key, _ = filesystem.split_path(target)
    call = partial(filesystem.call_s3, Bucket=bucket, Key=key)
    upload = partial(call, UploadId=call("create_multipart_upload")["UploadId"])
    copy = partial(upload, "upload_part_copy", CopySource={"Bucket": from_bucket, "Key": from_key})
    try:
        parts = [
            copy(PartNumber=number, CopySourceRange=f"bytes={start}-{end - 1}")["CopyPartResult"]
            for number, (start, end) in enumerate(_ranges(size), 1)
        ]
        parts.append(upload("upload_part", PartNumber=len(parts) + 1, Body=tail))
        whole = [{"PartNumber": number, "ETag": part["ETag"]} for number, part in enumerate(parts, 1)]
        upload("complete_multipart_upload", MultipartUpload={"Parts": whole})
    except BaseException:
        with suppress(Exception):
            upload("abort_multipart_upload")
        raise


def _ranges(size: int) -> list[tuple[int, int]]:
    """Equal parts of at most `COPY_BYTES`."""
    number = -(-size // COPY_BYTES)
    return [(size * part // number, size * (part + 1) // number) for part in range(number)]
