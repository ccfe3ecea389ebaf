"""Modules that replace slow ones during an import, and load the real ones on use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def import_with(stand_ins: Mapping[str, ModuleType], name: str, package: str) -> None:
    """Import a module while others are replaced by stand-ins; if that fails, import it as it is.

    Raises:
        ImportError: the module can't be imported as it is, either.
    """
    sys.modules.update(stand_ins)
    try:
        importlib.import_module(name)
    except Exception:
        # What a stand-in lacks may raise any error; an error of the module itself is raised again below.
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


class Later:
    """A function or class of a module that is imported when it is called."""

    def __init__(self, module_name: str, name: str) -> None:
        """Nothing is imported yet."""
        self._module_name = module_name
        self._name = name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Import and call the real one."""
        return getattr(importlib.import_module(self._module_name), self._name)(*arguments, **options)
