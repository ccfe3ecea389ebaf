"""Prints each private member of a library that a class of the packages has from its bases and uses,
a line each: `module:class.member`. A process of its own, as it imports all modules.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
from functools import cache

from singer_spark.core.lean_imports import import_singer_sdk

PACKAGES = ("singer_spark", "tap_spark_jdbc", "target_spark_lake")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_of_a_library(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    return package not in (*PACKAGES, *sys.stdlib_module_names)


def parsed(kind: type) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # it is not made of source
        return ast.Module([], [])


@cache
def members(kind: type) -> set[str]:
    """Those of the class itself: also those that it only sets."""
    assigned = {
        each.attr
        for each in ast.walk(parsed(kind))
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id in ("self", "cls")
    }
    return {*vars(kind), *getattr(kind, "__annotations__", {}), *assigned}


@cache
def used(kind: type) -> set[str]:
    names: set[str] = set()
    for each in ast.walk(parsed(kind)):
        if isinstance(each, ast.Attribute):
            names.add(each.attr)
        elif isinstance(each, ast.Name):
            names.add(each.id)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(each.name)
    return names


def inherited(kind: type) -> set[str]:
    """Private members that a class uses, and that a base of another package has."""
    bases = [each for each in kind.__mro__[1:] if is_of_a_library(each)]
    # Most classes have none, and a class's source is slow to find.
    if not bases:
        return set()
    known = {name for each in bases for name in members(each)}
    return {name for name in used(kind) & known if is_private(name)}


def main() -> None:
    import_singer_sdk()
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == found.name:
                    for name in sorted(inherited(kind)):
                        print(f"{found.name}:{kind.__name__}.{name}")


if __name__ == "__main__":
    main()
