"""Modules that take the place of slow ones during an import, and hand on the real ones when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def import_with(stand_ins: Mapping[str, ModuleType], name: str, package: str) -> None:
    """Imports a module while others are stood in for; one that can't be imported so is imported as it is.

    Raises:
        ImportError: the module can't be imported as it is, either.
    """
    sys.modules.update(stand_ins)
    try:
        importlib.import_module(name)
    except Exception:
        # Whatever a stand-in lacks shows itself in a way of its own; a fault of the module's own comes again below.
        for each in [each for each in sys.modules if f"{each}.".startswith(f"{package}.")]:
            del sys.modules[each]
    finally:
        for each in stand_ins:
            sys.modules.pop(each, None)
    importlib.import_module(name)


def module(name: str, content: Mapping[str, Any]) -> ModuleType:
    """A module with this content."""
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


def attributes_of(name: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that hands on what the real module of this name has."""
    return lambda attribute: getattr(importlib.import_module(name), attribute)


class Later:
    """A function or class of a module that is imported when it is called."""

    def __init__(self, module_name: str, name: str) -> None:
        """Imports nothing."""
        self._module_name = module_name
        self._name = name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Does what the real one does."""
        return getattr(importlib.import_module(self._module_name), self._name)(*arguments, **options)
