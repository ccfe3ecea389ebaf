"""Imports jsonschema without two libraries that hardly any schema needs and that are half of a program's start.

With its formats installed, jsonschema builds a grammar of IRIs and loads a calendar for durations whenever it is
imported. Durations are no format of Draft 7; who checks IRIs imports `rfc3987_syntax` where a value is checked.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

SLOW = ("rfc3987_syntax", "isoduration")


def import_jsonschema() -> None:
    """To be called before anything else imports jsonschema, in the main thread; afterwards it does nothing."""
    if "jsonschema" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in SLOW if name not in modules]
    # None makes an import fail as that of a missing module does, which jsonschema is made for.
    modules.update(dict.fromkeys(hidden))
    try:
        importlib.import_module("jsonschema")
    finally:
        for name in hidden:
            del modules[name]
