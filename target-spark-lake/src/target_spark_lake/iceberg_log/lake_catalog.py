"""The catalog in which the lake's Iceberg tables are registered, opened only while it is used, and
PyIceberg's file access, which is like all other access to a bucket or disk: files appear whole, and
survive a power cut.
"""

from __future__ import annotations

import io
import json
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StorageError, cut, foreign_errors
from singer_spark.store.local_files import LocalFiles, private_file
from singer_spark.store.storage import SCRATCH, Storage
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import LAKE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from pyiceberg.catalog import Catalog
    from pyiceberg.io import InputStream
    from pyiceberg.table import Table
    from pyiceberg.typedef import Properties

    from target_spark_lake.layout import IcebergCatalog

CATALOG_FILE = f"{LAKE_FOLDER}/catalog.db"
# PyIceberg's property that holds how the lake's storage was opened, as JSON.
STORAGE = "dataspoc.storage"
_FILE_IO = "target_spark_lake.iceberg_log.lake_catalog.LakeFiles"


class LakeCatalog:
    """An open catalog."""

    def __init__(self, catalog: Catalog, chosen: IcebergCatalog, storage: Storage) -> None:
        self.catalog = catalog
        self._chosen = chosen
        self._storage = storage

    def identifier(self, table: str) -> tuple[str, ...]:
        """Namespace and name of a table."""
        return self._chosen.identifier(table)

    def location(self, path: str) -> str:
        """A path of the bucket as spelled in Iceberg's metadata."""
        return spellings(self._storage, path)[0]

    def load(self, table: str) -> Table | None:
        """A table's current state; None if the catalog has none.

        Raises a ConfigurationError if the catalog's table of this name has another location.
        """
        found = self.find(table)
        if found is not None:
            self.check_location(table, found)
        return found

    def find(self, table: str) -> Table | None:
        """Like `load`, wherever the table is located."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self.catalog.load_table(self.identifier(table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def check_location(self, table: str, found: Table) -> None:
        """Refuse a table whose location is not the folder of its name."""
        if found.location().rstrip("/") not in spellings(self._storage, table):
            raise ConfigurationError(
                LakeCode.CATALOG_MISMATCH,
                f"the catalog's table {'.'.join(self.identifier(table))} lies in "
                f"{found.location()}, and not in {self.location(table)}; give the stream another "
                "`path`, or set another `namespace`",
            )

    def make_namespace(self, table: str) -> None:
        """Create the namespace of a table and its parents, if missing."""
        levels = self.identifier(table)[:-1]
        for depth in range(1, len(levels) + 1):
            try:
                self.catalog.create_namespace_if_not_exists(levels[:depth])
            except Exception:
                # Another table of the run, or another pipeline, is creating it at this moment.
                if not self.catalog.namespace_exists(levels[:depth]):
                    raise


def spellings(storage: Storage, path: str) -> tuple[str, ...]:
    """All spellings of a path in Iceberg's metadata: ours first, then those of other writers."""
    location = f"{storage.url}/{path}".rstrip("/")
    if storage.local:
        return f"file://{location}", location, f"file:{location}"
    protocol, _, rest = location.partition("://")
    if storage.kind == "az":
        # Others use URLs with the account's name, which `az://` leaves out.
        whole = storage.url_for_spark(path).partition("://")[2]
        return (*(f"{other}://{whole}" for other in ("abfss", "abfs", "wasbs", "wasb")), location)
    others = ("s3", "s3a", "s3n") if protocol in ("s3", "s3a") else ()
    return (location, *(f"{other}://{rest}" for other in others))


def io_properties(storage: Storage) -> dict[str, str]:
    """PyIceberg's properties for access to the table's files; they contain secrets."""
    if not storage.local and not storage.kind:
        return {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    location = {
        "url": storage.url,
        "options": storage.options,
        "accept_unconditional": storage.accept_unconditional,
    }
    return {"py-io-impl": _FILE_IO, STORAGE: json.dumps(location)}


@contextmanager
def opened(storage: Storage, chosen: IcebergCatalog, table: str) -> Iterator[LakeCatalog]:
    """The open catalog, for the duration of the context; the table is for errors.

    Raises a StorageError if it can't be reached, or its content can't be read.
    """
    with catalog_errors(f"Iceberg table {table}"):
        catalog = _opened(storage, chosen)
        try:
            yield LakeCatalog(catalog, chosen, storage)
        finally:
            catalog.close()


def catalog_errors(what: str) -> AbstractContextManager[None]:
    """Convert failures of PyIceberg's catalogs and stores to StorageError."""
    return foreign_errors(
        lambda error: StorageError(
            LakeCode.CATALOG_FAILED,
            f"{what} could not be read or written: {_cause(error)}; run again",
        )
    )


def _cause(error: Exception) -> str:
    return cut(f"{type(error).__name__}: {error}", 500)


def _opened(storage: Storage, chosen: IcebergCatalog) -> Catalog:
    from pyiceberg.catalog import load_catalog

    properties = {name: value for name, value in chosen.properties.items() if name != "name"}
    if not properties:
        if not storage.local:
            raise ConfigurationError(
                LakeCode.CATALOG_MISMATCH,
                "the setting `catalog` says which catalog the Iceberg tables of this bucket are "
                "registered in; run it with the target's config",
            )
        if (location := Path(storage.url, CATALOG_FILE)).parent.is_dir():
            private_file(location)
        properties = {"type": "sql", "uri": f"sqlite:///{storage.url}/{CATALOG_FILE}"}
    properties = {**io_properties(storage), **properties}
    try:
        return load_catalog(chosen.name, **properties)
    except ImportError as error:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING, f"catalog: a package is missing: {_cause(error)}"
        ) from error
    except Exception:
        # Two processes may have created the tables of a SQL catalog at once; any other error occurs
        # again.
        return load_catalog(chosen.name, **properties)


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
