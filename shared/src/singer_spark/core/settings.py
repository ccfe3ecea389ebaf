"""Settings of both programs: each is declared once, as an attribute of a frozen value that has its
JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from typing import Any

JSON = dict[str, Any]
TEXT: JSON = {"type": "string"}
TEXTS: JSON = {"type": "array", "items": TEXT}
NOT_EMPTY: JSON = {"type": "string", "minLength": 1}
COUNT: JSON = {"type": "integer", "minimum": 1}


def described(schema: Mapping[str, Any], description: str, *, secret: bool = False) -> JSON:
    """A JSON Schema with its description for users, in Markdown."""
    found: JSON = {**schema, "description": description}
    return {**found, "secret": True, "writeOnly": True} if secret else found


def setting(
    schema: Mapping[str, Any],
    description: str,
    default: Any = None,
    *,
    of: Callable[[], Any] | None = None,
    required: bool = False,
    secret: bool = False,
    shown: bool = True,
) -> Any:
    """An attribute with its JSON Schema.

    Args:
        schema: what a config may hold; the value of the attribute may be made of it.
        description: for users, in Markdown.
        default: the attribute's; one that is empty is no default for users.
        of: makes the default of an object.
        required: whether it must be given, so that there is no default.
        secret: whether it is hidden in logs and texts of errors.
        shown: whether the default is part of the JSON Schema.
    """
    found = described(schema, description, secret=secret)
    if of is not None:
        return field(default_factory=of, repr=not secret, metadata=found)
    if shown and default not in (None, (), ""):
        found["default"] = list(default) if isinstance(default, tuple) else default
    return field(default=MISSING if required else default, repr=not secret, metadata=found)


def declared(settings: type[Any]) -> dict[str, JSON]:
    """The JSON Schema of each setting that a dataclass declares."""
    return {each.name: dict(each.metadata) for each in fields(settings)}


def object_schema(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> JSON:
    """JSON Schema of an object without other properties."""
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def schema_of(settings: type[Any]) -> JSON:
    """JSON Schema of the objects that a dataclass declares."""
    required = [
        each.name
        for each in fields(settings)
        if each.default is MISSING and each.default_factory is MISSING
    ]
    return object_schema(declared(settings), tuple(required))
