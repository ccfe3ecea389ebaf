"""File access for PyIceberg like all other access to a bucket or disk: files appear whole, and
survive a power cut.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

from singer_spark.store.local_files import LocalFiles
from singer_spark.store.storage import SCRATCH, Storage
from target_spark_lake.table_logs.iceberg_log.lake_catalog import STORAGE

if TYPE_CHECKING:
    from types import TracebackType

    from pyiceberg.io import InputStream
    from pyiceberg.typedef import Properties


class LakeFiles(FileIO):
    """The file IO for tables in a bucket or on a disk."""

    def __init__(self, properties: Properties = {}) -> None:  # noqa: B006 (as PyIceberg's)
        super().__init__(properties)
        self._opening = json.loads(properties[STORAGE])
        lake = self._opening.pop("url")
        self._disk = Storage("/", files=LocalFiles(Path("/"), f"{lake}/{SCRATCH}"))
        self._buckets: dict[str, Storage] = {}

    def new_input(self, location: str) -> BucketFile:
        return self._file(location)

    def new_output(self, location: str) -> BucketFile:
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; a missing one is fine."""
        self._file(location if isinstance(location, str) else location.location).delete()

    def _file(self, location: str) -> BucketFile:
        scheme, _, rest = location.partition("://")
        if scheme == "file" or not rest:
            return BucketFile(location, self._disk, location.removeprefix("file:").lstrip("/"))
        name, _, path = rest.partition("/")
        bucket = f"{'s3' if scheme == 's3n' else scheme}://{name}"
        if bucket not in self._buckets:
            self._buckets[bucket] = Storage(bucket, **self._opening)
        return BucketFile(location, self._buckets[bucket], path)


class BucketFile(InputFile, OutputFile):
    """One object."""

    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._path = path

    def __len__(self) -> int:
        size = self._storage.size(self._path)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def open(self, seekable: bool = True) -> InputStream:
        """Open the object as a stream; FileNotFoundError if it is missing."""
        if seekable:
            return cast("InputStream", self._storage.files.open(self._path))
        content = self._storage.read(self._path)
        if content is None:
            raise FileNotFoundError(self.location)
        return io.BytesIO(content)

    def to_input_file(self) -> BucketFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        """A stream whose bytes are written when it is closed."""
        return _Written(self, overwrite=overwrite)

    def write(self, content: bytes, *, overwrite: bool) -> None:
        """Write the object in one request; raises FileExistsError if one exists and must stay."""
        if overwrite:
            self._storage.replace(self._path, content)
        elif not self._storage.create(self._path, content):
            raise FileExistsError(self.location)

    def delete(self) -> None:
        """Remove the object; a missing one is fine."""
        self._storage.delete(self._path)


class _Written(io.BytesIO):
    """A stream whose bytes become an object when it is closed, unless the writer failed."""

    def __init__(self, file: BucketFile, *, overwrite: bool) -> None:
        super().__init__()
        self._file = file
        self._overwrite = overwrite

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._file.write(content, overwrite=self._overwrite)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            super().close()
        self.close()

    def __del__(self) -> None:
        """A stream that was never closed writes nothing."""
