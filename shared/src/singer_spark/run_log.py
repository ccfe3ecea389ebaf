"""The runs of a pipeline as their journal objects tell them: what both programs must agree on."""

from __future__ import annotations

from urllib.parse import quote

LAKE_FOLDER = ".dataspoc"


def folder_name(name: str) -> str:
    """A name as one path segment: all but letters, digits, `-`, `_`, `.` percent-encoded, a leading `.` or `_` too."""
    encoded = quote(name, safe="").replace("~", "%7E")
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded


def runs_folder(pipeline: str) -> str:
    """Folder of a pipeline's journals."""
    return f"{LAKE_FOLDER}/runs/{folder_name(pipeline)}"
