"""What a run does with the saved state at its end: replace it, merge into it, or leave it alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

from target_spark_lake.commit.meltano_pipeline import flag, option

JSON = dict[str, Any]
AUTO = "auto"


class Saving(StrEnum):
    """What becomes of the saved state.

    Attributes:
        REPLACE: The run's state replaces it.
        MERGE: The bookmarks of streams that the run did not send are kept.
        KEEP: It is left as it is; the run's state is not saved.
    """

    REPLACE = "replace"
    MERGE = "merge"
    KEEP = "keep"


def saving_under_meltano(environ: Mapping[str, str], parent_arguments: Sequence[str]) -> Saving:
    """The mode of the Meltano run that started this process, by the rules for Meltano's own state
    record.
    """
    if not environ.get("MELTANO_LOADER_NAME"):
        return Saving.REPLACE
    if flag(parent_arguments, "--no-state-update", environ.get("MELTANO_RUN_NO_STATE_UPDATE")):
        return Saving.KEEP
    strategy = (
        option(parent_arguments, "--state-strategy")
        or environ.get("MELTANO_RUN_STATE_STRATEGY")
        or AUTO
    )
    if strategy == AUTO:
        merge = refreshes_under_meltano(environ, parent_arguments) or flag(
            parent_arguments, "--merge-state", None
        )
        return Saving.MERGE if merge else Saving.REPLACE
    return Saving.MERGE if strategy == Saving.MERGE else Saving.REPLACE


def refreshes_under_meltano(environ: Mapping[str, str], parent_arguments: Sequence[str]) -> bool:
    """Whether the Meltano run that started this process makes a full refresh."""
    asked = flag(parent_arguments, "--full-refresh", environ.get("MELTANO_RUN_FULL_REFRESH"))
    return asked and bool(environ.get("MELTANO_LOADER_NAME"))


def state_to_save(
    saving: Saving, value: JSON | None, saved: Mapping[str, Any] | None, sent: Collection[str]
) -> JSON | None:
    """The state that a run commits, given its last STATE and the streams it sent; None to keep the
    saved one.
    """
    if saving is Saving.KEEP or value is None:
        return None
    return value if saving is Saving.REPLACE else merged_state(saved, value, sent)


def merged_state(
    saved: Mapping[str, Any] | None, value: Mapping[str, Any], sent: Collection[str] = ()
) -> JSON:
    """A state merged into the saved one: bookmarks are replaced whole, and dropped for streams that
    were sent.
    """
    merged = {**(saved or {}), **value}
    before, after = (saved or {}).get("bookmarks"), value.get("bookmarks")
    if isinstance(before, dict) and isinstance(after, dict):
        merged["bookmarks"] = {
            **{stream: each for stream, each in before.items() if stream not in sent},
            **after,
        }
    return merged


def cleared(saved: JSON | None) -> JSON | None:
    """The state from which everything is extracted; None if there is no state yet.

    For another tap's own state, the empty state is used, which every tap accepts.
    """
    if saved is None:
        return None
    return {"bookmarks": {}} if isinstance(saved.get("bookmarks"), dict) else {}
