"""Import singer-sdk without what only taps of web services, and targets with parallel threads, need.

That saves a third of the import of either program, 0.3 s of CPU time (`-X importtime` shows it).

The SDK loads an HTTP client and JSONPath for REST and GraphQL streams and for schemas from the web, joblib for a drain
that our target does by itself, and universal-pathlib, with all of fsspec, for a test of its own kind of batch. Code
that uses them gets the real ones.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from singer_spark.imports.stand_ins import Later, import_with, module

SDK = "singer_sdk"
# Each module, and the classes that the SDK imports from it for re-export.
WEB_STREAMS = {"singer_sdk.streams.rest": "RESTStream", "singer_sdk.streams.graphql": "GraphQLStream"}
JOBLIB = ("Parallel", "delayed", "parallel_config")


def import_singer_sdk() -> None:
    """Import singer-sdk; to be called before anything else imports it, else it does nothing.

    An SDK that can't be imported this way, as its modules have moved, is imported as it is.
    """
    if SDK in sys.modules:
        return
    import_with(_stand_ins(), SDK, SDK)


def _stand_ins() -> dict[str, ModuleType]:
    """Replacements for the slow modules while the SDK is imported."""
    modules = {name: module(name, {each: type(each, (), {})}) for name, each in WEB_STREAMS.items()}
    if "joblib" not in sys.modules:
        modules["joblib"] = module("joblib", {name: Later("joblib", name) for name in JOBLIB})
    if "upath" not in sys.modules:
        modules["upath"] = module("upath", {"UPath": Later("upath", "UPath")})
    if "requests" not in sys.modules:
        modules["requests"] = module("requests", {"__getattr__": lambda name: getattr(import_module("requests"), name)})
    return modules
