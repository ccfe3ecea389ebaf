"""Where a pipeline's Singer state is kept, and how it is read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from singer_spark.run_log import LAKE_FOLDER, folder_name

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class SavedState:
    """A state that was found.

    Attributes:
        value: The Singer STATE value.
        origin: Where it came from, for people.
        run_id: The run that saved it, where the lake knows.
    """

    value: dict[str, Any]
    origin: str
    run_id: str | None = None


class StateStore(Protocol):
    """A place for the published copy of a pipeline's state."""

    def read(self) -> dict[str, Any] | None:
        """The published state, or None."""

    def write(self, value: Mapping[str, Any]) -> None:
        """Replaces it at once."""


def state_path(pipeline: str) -> str:
    """The state object of a pipeline in its bucket."""
    return f"{LAKE_FOLDER}/state/{folder_name(pipeline)}/state.json"


def read_state(text: str | bytes, origin: str = "state") -> dict[str, Any]:
    """Parses a Singer STATE value.

    Raises:
        StateError: it is not JSON, with line and column, or not an object.
    """
    raise NotImplementedError


def load_state(url: str, options: Mapping[str, Any] | None = None) -> SavedState | None:
    """The state that a path or fsspec URL holds; None where nothing is yet.

    On `<bucket>/.dataspoc/state/<pipeline>/state.json` a run that committed and died before `state.json` followed
    counts: its state is returned.
    """
    raise NotImplementedError
