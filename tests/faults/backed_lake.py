"""A small lake whose state is kept elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from faults.faulty import Faulty
from faults.small_lake import PIPELINE, SmallLake, bound_of
from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError
from singer_spark.state.backend import StateBackend, open_state_store
from singer_spark.state.store import StateStore, published_state


class FaultyStore(Faulty):
    """Its failures are those of a store."""

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        try:
            return super().around(name, args, call)
        except OSError as error:
            raise StorageError(RunCode.STORAGE_FAILED, str(error)) from error


@dataclass(frozen=True)
class BackedLake(SmallLake):
    """With a `state_backend`.

    Attributes:
        backend: Where the state is kept.
        wrap: A proxy around the store under test.
    """

    backend: StateBackend = field(default_factory=StateBackend, hash=False)
    wrap: Callable[[StateStore], Any] = field(default=lambda store: store, hash=False)

    def store(self) -> StateStore:
        return self.wrap(open_state_store(self.backend, self.storage(), PIPELINE))

    def published_bound(self) -> int:
        saved = published_state(open_state_store(self.backend, self.storage(), PIPELINE))
        return bound_of(saved.value if saved else None)
