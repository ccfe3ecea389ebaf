"""An object read as a file: seeking costs nothing, and only what is read is transferred."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from singer_spark.store.bucket import Bucket

# The footers of most Parquet files fit in, so one request brings the footer, and the size, too.
END_BYTES = 1 << 16
# Small reads fetch this much at once.
AHEAD_BYTES = 4 << 20


class ObjectFile(io.RawIOBase):
    """One object; its end is read on opening, which raises FileNotFoundError if there is none."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        super().__init__()
        self._bucket = bucket
        self._key = key
        self._end, self._size = bucket.read_end(key, END_BYTES)
        self._place = 0
        self._ahead = b""
        self._ahead_at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(base + offset, 0)
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._place, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._part(self._place, wanted) if wanted else b""
        self._place += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _part(self, start: int, length: int) -> bytes:
        if start >= (end_at := self._size - len(self._end)):
            return self._end[start - end_at : start - end_at + length]
        inside = start - self._ahead_at
        if 0 <= inside and inside + length <= len(self._ahead):
            return self._ahead[inside : inside + length]
        if length >= AHEAD_BYTES:
            return self._bucket.read_range(self._key, start, length)
        # The bytes right after those read are likely to be read next.
        more = AHEAD_BYTES if start == 0 or start == self._ahead_at + len(self._ahead) else length
        self._ahead = self._bucket.read_range(
            self._key, start, min(max(more, length), self._size - start)
        )
        self._ahead_at = start
        return self._ahead[:length]
