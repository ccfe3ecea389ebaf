"""Imports singer-sdk without what only taps of web services, and targets in parallel threads, need.

That is a third of the import of either program, 0.3 s of CPU time (`-X importtime` shows it).

The SDK loads an HTTP client and JSONPath for REST and GraphQL streams and for schemas from the web, and joblib for a
drain that our target does by itself. Who uses them gets the real ones.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

SDK = "singer_sdk"
# Module, and the classes that the SDK takes from it to hand them on.
WEB_STREAMS = {"singer_sdk.streams.rest": "RESTStream", "singer_sdk.streams.graphql": "GraphQLStream"}
JOBLIB = ("Parallel", "delayed", "parallel_config")


def import_singer_sdk() -> None:
    """To be called before anything else imports singer_sdk; afterwards it does nothing.

    An SDK that can't be imported so, as its modules lie elsewhere, is imported as it is.
    """
    if SDK in sys.modules:
        return
    stand_ins = _stand_ins()
    sys.modules.update(stand_ins)
    try:
        importlib.import_module(SDK)
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == SDK]:
            del sys.modules[name]
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)
    importlib.import_module(SDK)


def _stand_ins() -> dict[str, ModuleType]:
    """What takes the place of the slow modules while the SDK is imported."""
    modules = {name: _module(name, {each: type(each, (), {})}) for name, each in WEB_STREAMS.items()}
    if "joblib" not in sys.modules:
        modules["joblib"] = _module("joblib", {name: _Later(name) for name in JOBLIB})
    if "requests" not in sys.modules:
        modules["requests"] = _module("requests", {"__getattr__": _of_requests})
    return modules


class _Later:
    """A function or class of joblib, which is imported when it is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Does what the real one does."""
        return getattr(importlib.import_module("joblib"), self._name)(*arguments, **options)


def _of_requests(name: str) -> Any:
    return getattr(importlib.import_module("requests"), name)


def _module(name: str, content: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(content)
    return module
