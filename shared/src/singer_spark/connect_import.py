"""Imports PySpark's client of Spark Connect without pandas, which is a third of that import and which nobody here uses.

The client's modules import it for `toPandas` and for `createDataFrame` of its frames. Who uses them gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

CLIENT = "pyspark.sql.connect.session"
PANDAS = "pandas"
TYPES = "pandas.api.types"
# What the client takes from it by name.
OF_TYPES = ("is_datetime64_dtype", "is_timedelta64_dtype")
# What its signatures name: evaluated while it is imported, and never looked at.
NAMED = "DataFrame"


def import_connect() -> None:
    """To be called before anything else imports pyspark.sql.connect; afterwards it does nothing.

    A client that can't be imported so, as it uses more of pandas at once, is imported as it is.

    Raises:
        ImportError: the client needs a package that is not installed.
    """
    if CLIENT in sys.modules:
        return
    stand_ins = {} if PANDAS in sys.modules else _stand_ins()
    sys.modules.update(stand_ins)
    try:
        importlib.import_module(CLIENT)
    except Exception:
        if not stand_ins:
            raise
        for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
            del sys.modules[name]
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)
    # From here on it is the real one's.
    stand_ins.get(PANDAS, ModuleType(PANDAS)).__dict__.pop(NAMED, None)
    importlib.import_module(CLIENT)


def _stand_ins() -> dict[str, ModuleType]:
    try:
        known = version(PANDAS)
    except PackageNotFoundError:
        return {}
    top, api, types = (ModuleType(name) for name in (PANDAS, "pandas.api", TYPES))
    # The client looks whether it is new enough.
    top.__dict__.update({"__version__": known, "__path__": [], "api": api, NAMED: object, "__getattr__": _of_pandas})
    api.__dict__.update(__path__=[], types=types)
    types.__dict__.update({name: _later(name) for name in OF_TYPES})
    return {each.__name__: each for each in (top, api, types)}


def _of_pandas(name: str) -> Any:
    return getattr(importlib.import_module(PANDAS), name)


def _later(name: str) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(TYPES), name)(*arguments, **options)

    return call
