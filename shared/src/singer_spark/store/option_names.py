"""The valid names in `storage_options`: fsspec's for each kind of store, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from singer_spark.errors import ConfigurationError

S3, GOOGLE, AZURE = "s3", "gs", "az"
KINDS = {
    "s3": S3,
    "s3a": S3,
    "gs": GOOGLE,
    "gcs": GOOGLE,
    "az": AZURE,
    "abfs": AZURE,
    "abfss": AZURE,
}
# fsspec's options for caching and reading ahead in its own filesystems: accepted, and ignored.
_OF_FSSPEC = frozenset(
    {
        "asynchronous", "batch_size", "block_size", "blocksize", "cache_regions", "cache_timeout",
        "check_connection",
        "consistency", "default_block_size", "default_cache_type", "default_fill_cache",
        "default_location", "dircache",
        "fixed_upload_size", "listings_expiry_time", "location_mode", "loop", "max_concurrency",
        "max_paths",
        "request_session", "secure_serialize", "session_kwargs", "skip_instance_cache",
        "use_listings_cache",
        "version_aware", "assume_container_exists",
    }
)  # fmt: skip
NAMES = {
    S3: frozenset(
        {
            "anon", "client_kwargs", "config_kwargs", "endpoint_url", "key", "password", "profile",
            "requester_pays",
            "s3_additional_kwargs", "secret", "token", "use_ssl", "username",
        }
    ),
    GOOGLE: frozenset(
        {"access", "endpoint_url", "project", "requests_timeout", "requester_pays", "timeout", "token"}  # noqa: E501
    ),
    AZURE: frozenset(
        {
            "account_host", "account_key", "account_name", "anon", "client_id", "client_secret",
            "connection_string",
            "connection_timeout", "credential", "endpoint_url", "read_timeout", "sas_token",
            "socket_timeout",
            "tenant_id",
        }
    ),
}  # fmt: skip


def check_names(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that is not valid for this kind of store.

    Raises:
        ConfigurationError: names the option and the most similar valid one.
    """
    known = NAMES[kind]
    for name in options:
        if name in known or name in _OF_FSSPEC:
            continue
        near = get_close_matches(name, sorted(known), 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"
        raise ConfigurationError(
            f"storage_options has {name!r}, which {kind}:// does not know{hint}"
        )
