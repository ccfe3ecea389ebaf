"""A copy of an object on S3 with more bytes behind it, made inside the store: nothing of the object is transferred."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

# Every part of an upload but the last one must have as much.
LEAST_PART_BYTES = 5 << 20
# The store takes 5 GiB in one request, and more quickly several at once.
COPY_BYTES = 1 << 30


def copy_and_append(filesystem: Any, source: str, size: int, tail: bytes, target: str) -> None:
    """Copies an object of at least `LEAST_PART_BYTES`, with bytes behind it; it appears whole or not at all.

    Args:
        filesystem: s3fs's.
        source: Bucket and key of the object.
        size: Its bytes.
        tail: What comes behind it.
        target: Bucket and key of the new object.
    """
    from_bucket, from_key, _ = filesystem.split_path(source)
    bucket, key, _ = filesystem.split_path(target)
    place = {"Bucket": bucket, "Key": key}
    upload = {**place, "UploadId": filesystem.call_s3("create_multipart_upload", **place)["UploadId"]}
    try:
        tags: list[str] = []
        for start, end in _ranges(size):
            copied = filesystem.call_s3(
                "upload_part_copy",
                **upload,
                PartNumber=len(tags) + 1,
                CopySource={"Bucket": from_bucket, "Key": from_key},
                CopySourceRange=f"bytes={start}-{end - 1}",
            )
            tags.append(copied["CopyPartResult"]["ETag"])
        tags.append(filesystem.call_s3("upload_part", **upload, PartNumber=len(tags) + 1, Body=tail)["ETag"])
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        filesystem.call_s3("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
    except BaseException:
        with suppress(Exception):
            filesystem.call_s3("abort_multipart_upload", **upload)
        raise


def _ranges(size: int) -> list[tuple[int, int]]:
    """Equal parts of at most `COPY_BYTES`."""
    number = -(-size // COPY_BYTES)
    return [(size * part // number, size * (part + 1) // number) for part in range(number)]
