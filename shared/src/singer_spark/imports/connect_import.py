"""Imports PySpark's client of Spark Connect without pandas, which is a third of that import and which nobody here uses.

The client's modules import it for what they do with its frames. Who does that gets the real one.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from singer_spark.imports.stand_ins import Later, attributes_of, import_with, module

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
    import_with(stand_ins, CLIENT, "pyspark.sql.connect")
    # From here on it is the real one's.
    if PANDAS in stand_ins:
        del stand_ins[PANDAS].__dict__[NAMED]


def _stand_ins() -> dict[str, ModuleType]:
    try:
        known = version(PANDAS)
    except PackageNotFoundError:
        return {}
    types = module(TYPES, {name: Later(TYPES, name) for name in OF_TYPES})
    api = module("pandas.api", {"__path__": [], "types": types})
    # The client looks whether it is new enough.
    content = {"__version__": known, "__path__": [], "api": api, NAMED: object, "__getattr__": attributes_of(PANDAS)}
    return {each.__name__: each for each in (module(PANDAS, content), api, types)}
