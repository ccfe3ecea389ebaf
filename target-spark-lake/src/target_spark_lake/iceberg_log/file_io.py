"""PyIceberg's properties for a store, from the storage options that everything else is configured by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from singer_spark.storage.local_files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.storage.storage import Storage

_Names = dict[str, tuple[str, ...]]
_FILE_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"
_ON_A_DISK = f"{__name__}.SyncedFileIO"
_S3: _Names = {
    "s3.access-key-id": ("key", "username", "aws_access_key_id"),
    "s3.secret-access-key": ("secret", "password", "aws_secret_access_key"),
    "s3.session-token": ("token", "aws_session_token"),
    "s3.endpoint": ("endpoint_url",),
    "s3.region": ("region", "region_name"),
    "s3.profile-name": ("profile",),
    "s3.anonymous": ("anon",),
}
_GCS: _Names = {
    "gcs.oauth2.token": ("token",),
    "gcs.project-id": ("project",),
    "gcs.service.host": ("endpoint_url",),
    "gcs.default-bucket-location": ("default_location",),
}
_AZURE: _Names = {
    "adls.account-name": ("account_name",),
    "adls.account-key": ("account_key",),
    "adls.sas-token": ("sas_token",),
    "adls.connection-string": ("connection_string",),
    "adls.tenant-id": ("tenant_id",),
    "adls.client-id": ("client_id",),
    "adls.client-secret": ("client_secret",),
    "adls.blob-storage-authority": ("account_host",),
}
_OF_STORES = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("az", "abfs", "abfss"), _AZURE),
}


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's, on a disk: what is written survives a power cut once it is closed, so before a catalog names it."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedStream(super().create(overwrite), self._path)


class _SyncedStream(OutputStream):
    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream, self._path = stream, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        LocalFiles(Path("/"), "").flush([self._path])

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def io_properties(storage: Storage) -> dict[str, str]:
    """What PyIceberg's file IO needs to reach the bucket; it holds secrets."""
    protocol = storage.url.partition("://")[0]
    names: _Names = {} if storage.local else _OF_STORES.get(protocol, {})
    inner = {**(storage.options.get("config_kwargs") or {}), **(storage.options.get("client_kwargs") or {})}
    given = {**inner, **{name: value for name, value in storage.options.items() if value is not None}}
    found = {name: _first(given, spellings) for name, spellings in names.items()}
    if names is _S3:
        found |= _place_of_s3(found)
    if names is _AZURE and "connection_string" in given:
        found |= _of_connection_string(str(given["connection_string"]))
    return {
        "py-io-impl": _ON_A_DISK if storage.local else _FILE_IO,
        **{name: _text(value) for name, value in found.items() if value is not None},
    }


def _first(given: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((given[name] for name in names if isinstance(given.get(name), str | bool)), None)


def _place_of_s3(found: Mapping[str, Any]) -> dict[str, Any]:
    """Server and region, also where only the environment says them; else PyIceberg asks Amazon for the region."""
    endpoint = found["s3.endpoint"] or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    named = found["s3.region"] or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {"s3.endpoint": endpoint, "s3.region": named or ("us-east-1" if endpoint else None)}


def _of_connection_string(text: str) -> dict[str, str | None]:
    """Account and servers of a connection string, which PyIceberg's Arrow IO does not read itself."""
    said = dict(each.partition("=")[::2] for each in text.split(";") if each)
    found: dict[str, str | None] = {
        "adls.account-name": said.get("AccountName"),
        "adls.account-key": said.get("AccountKey"),
    }
    if "BlobEndpoint" in said:
        server = urlsplit(said["BlobEndpoint"])
        found |= {"adls.blob-storage-authority": server.netloc, "adls.blob-storage-scheme": server.scheme}
        found |= {"adls.dfs-storage-authority": server.netloc, "adls.dfs-storage-scheme": server.scheme}
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
