"""The pipeline of a `meltano run`: its state id, which Meltano does not pass to plugins
directly.
"""

from __future__ import annotations

import os
import re
import string
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from singer_spark.state.handover import handed_over

STATE_ID_AS_PIPELINE = re.compile(r"([^.]+)\.([^.]+-to-[^.]+)(?:\.([^.]+))?")
TRUE = ("1", "on", "t", "true", "y", "yes")


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
        suffix = option(parent_arguments, "--state-id-suffix") or environ.get(
            "MELTANO_RUN_STATE_ID_SUFFIX"
        )
        suffix = suffix or _suffix_in_project(environ, environment)
        state_id = ":".join(
            part for part in (environment, f"{extractor}-to-{loader}", suffix) if part
        )
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
    files = [
        main,
        *(
            path
            for pattern in project.get("include_paths") or []
            for path in sorted(root.glob(pattern))
        ),
    ]
    for file in files:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        for entry in content.get("environments") or []:
            if entry.get("name") == environment and entry.get("state_id_suffix"):
                return string.Template(str(entry["state_id_suffix"])).safe_substitute(environ)
    return None
