"""Where the published copy of a pipeline's state is kept: `state_backend` of the target's config, the bucket without it.

The journal in the bucket decides which state counts; what is kept here is the copy that people and the tap read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from singer_spark.state_store import BucketState, state_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.state_store import StateStore
    from singer_spark.storage import Storage

DEFAULT_TABLE = "spark_lake_state"


@dataclass(frozen=True)
class StateBackend:
    """A place for states.

    Attributes:
        uri: `s3://…`, `file://…`, a path, `sqlite:///…` or `postgresql://…`; None: the lake's own bucket. May hold a
            password, so it is shown to nobody.
        table_name: Of a database, with a schema before a dot where wanted.
        storage_options: fsspec's, of another bucket or folder.
    """

    uri: str | None = field(default=None, repr=False)
    table_name: str = DEFAULT_TABLE
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, config: Mapping[str, Any] | None, storage_options: Mapping[str, Any] | None = None) -> StateBackend:
        """Reads `state_backend`.

        Args:
            config: Its value; None: the state is in the lake's bucket.
            storage_options: The target's, for a backend that has none of its own.
        """
        given = {name: value for name, value in (config or {}).items() if value is not None}
        given.setdefault("storage_options", dict(storage_options or {}))
        return cls(**given)


def open_state_store(backend: StateBackend, storage: Storage, pipeline: str) -> StateStore:
    """The store of one pipeline's state.

    Args:
        backend: From the target's config.
        storage: The lake's bucket.
        pipeline: Name of the isolated state.

    Raises:
        ConfigurationError: there is no such kind of backend.
    """
    if backend.uri is not None:
        raise ConfigurationError("state_backend: is not available yet, the state is kept in the bucket")
    return BucketState(storage, state_path(pipeline))
