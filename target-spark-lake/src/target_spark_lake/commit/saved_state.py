"""The saved state and a run: whether a tap started from it, and what the run does with it at its
end: replace it, merge into it, or leave it alone.

Under `meltano run` Meltano's command line decides that, and which pipeline it is. Meltano does not
pass either to plugins directly.
"""

from __future__ import annotations

import os
import re
import string
import subprocess
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from singer_spark.errors import ProtocolError, StateError
from singer_spark.state.handover import handed_over
from singer_spark.state.store import Checkpoint, same_state
from target_spark_lake.error_codes import LakeCode

JSON = dict[str, Any]
AUTO = "auto"
SAVED, FIRST, FULL, RESUME = "saved", "first", "full", "resume"
STATE_ID_AS_PIPELINE = re.compile(r"([^.]+)\.([^.]+-to-[^.]+)(?:\.([^.]+))?")
TRUE = ("1", "on", "t", "true", "y", "yes")


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
    """The mode of the Meltano run that started this process, by the rules for Meltano's state."""
    if not environ.get("MELTANO_LOADER_NAME"):
        return Saving.REPLACE
    if flag(parent_arguments, "--no-state-update", environ.get("MELTANO_RUN_NO_STATE_UPDATE")):
        return Saving.KEEP
    given = option(parent_arguments, "--state-strategy")
    strategy = given or environ.get("MELTANO_RUN_STATE_STRATEGY") or AUTO
    merges = strategy == Saving.MERGE
    if strategy == AUTO:
        refreshes = refreshes_under_meltano(environ, parent_arguments)
        merges = refreshes or flag(parent_arguments, "--merge-state", None)
    return Saving.MERGE if merges else Saving.REPLACE


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
    """A state merged into the saved one: bookmarks replaced whole, dropped for streams sent."""
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


def check_start(
    start: str | None,
    value: Mapping[str, Any],
    saved: Mapping[str, Any] | None,
    pipeline: str,
    last: str | None,
) -> None:
    """Refuse a run that started from another state; `start` is None for other taps.

    Raises:
        ProtocolError: the start is unknown.
        StateError: another run has changed the state meanwhile.
    """
    if start is None or start == FULL:
        return
    if start not in (SAVED, FIRST):
        raise ProtocolError(
            LakeCode.INPUT_OUT_OF_ORDER,
            f"the tap says it starts from {start!r}, which this target does not know",
        )
    if same_state(saved, value if start == SAVED else None):
        return
    read = "the state that it read" if start == SAVED else "no state"
    run = f" (last committed run: {last})" if saved is not None and last else ""
    raise StateError(
        LakeCode.STATE_MOVED_ON,
        f"pipeline {pipeline}: the tap started from {read}, but the saved one is different{run}; "
        "nothing was changed. Run tap and target again",
    )


def check_resumed(
    value: Mapping[str, Any],
    resume: Mapping[str, Any] | None,
    checkpoint: Checkpoint | None,
    pipeline: str,
) -> Checkpoint:
    """Return the checkpoint; refuse a run that resumes from anything else.

    Raises:
        StateError: it resumes from another checkpoint, or there is none any more.
    """
    if checkpoint is None:
        raise StateError(
            LakeCode.RESUMPTION_LOST,
            f"pipeline {pipeline}: the tap continues a run that died, but what that run staged is "
            "gone; nothing was changed. Run tap and target again: they start over",
        )
    if not (same_state(checkpoint.state, value) and same_state(checkpoint.resume, resume)):
        raise StateError(
            LakeCode.RESUMPTION_LOST,
            f"pipeline {pipeline}: the tap continues from an older place than run "
            f"{checkpoint.run_id} had staged; nothing was changed. Run tap and target again",
        )
    return checkpoint


def pipeline_of(state_id: str) -> str:
    """The pipeline named by a state id."""
    return state_id.replace(":", ".")


def state_id_of(pipeline: str) -> str:
    """The state id that `meltano run` uses for a pipeline of this name.

    Other names are their own state ids.
    """
    parts = STATE_ID_AS_PIPELINE.fullmatch(pipeline)
    return ":".join(part for part in parts.groups() if part) if parts else pipeline


def pipeline_under_meltano(
    environ: Mapping[str, str], parent_arguments: Sequence[str]
) -> str | None:
    """State id of the Meltano run that started this process, `:` written as `.`; None outside a
    pipeline.
    """
    extractor, loader = environ.get("MELTANO_EXTRACTOR_NAME"), environ.get("MELTANO_LOADER_NAME")
    environment = environ.get("MELTANO_ENVIRONMENT")
    if not (extractor and loader):
        return None
    state_id = None
    if "/run/elt/" in environ.get("SINGER_SDK_LOG_CONFIG", ""):
        state_id = option(parent_arguments, "--state-id") or environ.get("MELTANO_STATE_ID")
    elif environment:
        given = option(parent_arguments, "--state-id-suffix")
        suffix = given or environ.get("MELTANO_RUN_STATE_ID_SUFFIX")
        suffix = suffix or _suffix_in_project(environ, environment)
        state_id = ":".join(filter(None, (environment, f"{extractor}-to-{loader}", suffix)))
    return pipeline_of(state_id) if state_id else None


def location_of_another(environ: Mapping[str, str], bucket: str, pipeline: str) -> str | None:
    """Where Meltano keeps this run's state, if not in the target's bucket (`Storage.url`) and
    pipeline.
    """
    handed = handed_over(environ)
    if handed is None or (handed["bucket"], handed["pipeline"]) == (bucket, pipeline):
        return None
    return f"pipeline {handed['pipeline']} in {handed['bucket']}"


def parent_arguments() -> list[str]:
    """Command line of the parent process; empty if unknown."""
    try:
        raw = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
        return [part.decode(errors="replace") for part in raw.split(b"\0") if part]
    except OSError:
        listed = subprocess.run(
            ["ps", "-o", "args=", "-p", str(os.getppid())],
            capture_output=True,
            text=True,
            check=False,
        )
        return listed.stdout.split()


def flag(arguments: Sequence[str], name: str, variable: str | None) -> bool:
    """Whether a flag is on: given, or set by its environment variable."""
    return name in arguments or (variable or "").strip().lower() in TRUE


def option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option; None if it is not given."""
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


def _suffix_in_project(environ: Mapping[str, str], environment: str) -> str | None:
    import yaml

    root = Path(environ.get("MELTANO_PROJECT_ROOT", "."))
    main = root / "meltano.yml"
    if not main.is_file():
        return None
    project: dict[str, Any] = yaml.safe_load(main.read_text(encoding="utf-8")) or {}
    patterns = project.get("include_paths") or []
    included = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    for file in (main, *included):
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        for entry in content.get("environments") or []:
            if entry.get("name") == environment and entry.get("state_id_suffix"):
                return string.Template(str(entry["state_id_suffix"])).safe_substitute(environ)
    return None
