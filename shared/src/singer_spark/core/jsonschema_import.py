"""Import jsonschema without two libraries that hardly any schema needs and that take half of a
program's start.

With its formats installed, jsonschema builds a grammar of IRIs and loads a calendar for durations
whenever it is imported. Durations are not a format of Draft 7, and IRIs are checked by the target
itself.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

SLOW = ("rfc3987_syntax", "isoduration")


def import_jsonschema() -> None:
    """Import jsonschema.

    Call this in the main thread before anything else imports jsonschema; otherwise it does nothing.
    """
    if "jsonschema" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in SLOW if name not in modules]
    # None makes an import fail like that of a missing module, which jsonschema expects.
    modules.update(dict.fromkeys(hidden))
    try:
        importlib.import_module("jsonschema")
    finally:
        for name in hidden:
            del modules[name]
