"""Imports without the modules that hardly any run needs.

The SDK loads an HTTP client and JSONPath for REST and GraphQL streams and for schemas from the web,
joblib for a drain that our target does by itself, and universal-pathlib, with all of fsspec, for a
test of its own kind of batch. Code that uses them gets the real ones. That saves a third of the
import of either program, 0.3 s of CPU time (`-X importtime` shows it).

PyArrow imports pandas, where it is installed, before it makes its first array of a list. Only Spark
needs pandas, for Python in its tasks. Without it, a small run saves 0.2 s of CPU time and 35 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

SDK = "singer_sdk"
# Each module, and the classes that the SDK imports from it for re-export.
WEB_STREAMS = {
    "singer_sdk.streams.rest": "RESTStream",
    "singer_sdk.streams.graphql": "GraphQLStream",
}
JOBLIB = ("Parallel", "delayed", "parallel_config")
PANDAS = "pandas"


class _WithoutPandas:
    """A finder of modules that does not find pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse pandas; leave all else to the next finder."""
        if name == PANDAS:
            raise ModuleNotFoundError(f"{PANDAS} is left out of this process", name=name)


def leave_out_pandas() -> None:
    """Keep pandas from being imported in this process, until `allow_pandas`."""
    if PANDAS not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas)


def allow_pandas() -> None:
    """Let pandas be imported."""
    with suppress(ValueError):
        sys.meta_path.remove(_WithoutPandas)


def is_pandas_installed() -> bool:
    """Whether pandas can be imported; from here on it may be."""
    allow_pandas()
    return find_spec(PANDAS) is not None


def import_singer_sdk() -> None:
    """Import singer-sdk without what only taps of web services, and targets with parallel threads,
    need.

    Call this before anything else imports the SDK; otherwise it does nothing. If the SDK's modules
    have moved so that it can't be imported this way, it is imported as it is.
    """
    if SDK in sys.modules:
        return
    stand_ins = _stand_ins()
    sys.modules.update(stand_ins)
    try:
        import_module(SDK)
    except Exception:
        # What a stand-in lacks may raise any error; an error of the SDK itself is raised again
        # below.
        for each in [each for each in sys.modules if f"{each}.".startswith(f"{SDK}.")]:
            del sys.modules[each]
    finally:
        for each in stand_ins:
            sys.modules.pop(each, None)
    import_module(SDK)


def _stand_ins() -> dict[str, ModuleType]:
    """Replacements for the slow modules while the SDK is imported.

    They load the real ones on use.
    """
    modules = {
        name: _module(name, {each: type(each, (), {})}) for name, each in WEB_STREAMS.items()
    }
    if "joblib" not in sys.modules:
        modules["joblib"] = _module("joblib", {name: _later("joblib", name) for name in JOBLIB})
    if "upath" not in sys.modules:
        modules["upath"] = _module("upath", {"UPath": _later("upath", "UPath")})
    if "requests" not in sys.modules:
        attributes = {"__getattr__": lambda name: getattr(import_module("requests"), name)}
        modules["requests"] = _module("requests", attributes)
    return modules


def _module(name: str, content: Mapping[str, Any]) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function or class of a module that is imported when it is called."""
    return lambda *arguments, **options: getattr(import_module(module), name)(*arguments, **options)
