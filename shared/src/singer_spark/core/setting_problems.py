"""Problems of a config, setting by setting, in messages that show no secret; the same for both
programs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from singer_spark.core.config_secrets import is_secret_name
from singer_spark.core.jsonschema_import import import_jsonschema

if TYPE_CHECKING:
    from jsonschema import ValidationError

# Settings that the SDK adds by itself and that are its own to check.
SDK_SETTINGS = (
    "stream_maps",
    "stream_map_config",
    "faker_config",
    "flattening_enabled",
    "flattening_max_depth",
    "flattening_max_key_length",
    "flattening_separator",
    "use_singer_decimal",
)


def nearest(name: str, known: Collection[str]) -> str:
    """` (did you mean 'x'?)` if a known name is similar, else empty."""
    lowered = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(lowered[each]) for each in near)}?)" if near else ""


def config_problems(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Every setting that is unknown, missing, or violates the schema."""
    import_jsonschema()
    from jsonschema import Draft7Validator

    errors = sorted(
        Draft7Validator(schema).iter_errors(config), key=lambda error: str(list(error.path))
    )
    return [problem for error in errors for problem in _worded(error, schema)]


def _worded(error: ValidationError, whole: Mapping[str, Any]) -> list[str]:
    schema: Any = error.schema
    wanted: Any = error.validator_value
    instance: Any = error.instance
    path = ".".join(str(part) for part in error.path)
    top = whole["properties"].get(error.path[0], {}) if error.path else {}
    secret = bool(
        top.get("secret")
        or schema.get("secret")
        or any(is_secret_name(str(part)) for part in error.path)
        # A list or an object, present or expected, may contain a password anywhere.
        or isinstance(instance, dict | list)
        or any(kind in str(schema.get("type")) for kind in ("array", "object"))
    )
    shown = "" if secret else f", not {instance!r}"
    match error.validator:
        case "additionalProperties":
            known = list(schema["properties"])
            names = [f"{path}.{name}" if path else name for name in instance if name not in known]
            return [
                f"{name}: no such setting{nearest(name.rpartition('.')[2], known)}"
                for name in names
            ]
        case "required":
            missing = [name for name in wanted if name not in instance]
            return [
                f"{path}.{name}: is missing" if path else f"{name}: is missing" for name in missing
            ]
        case "type":
            kinds = [
                kind for kind in ([wanted] if isinstance(wanted, str) else wanted) if kind != "null"
            ]
            return [f"{path}: must be of type {' or '.join(kinds)}{shown}"]
        case "enum":
            return [
                f"{path}: must be one of "
                f"{', '.join(str(each) for each in wanted if each is not None)}{shown}"
            ]
        case "minimum":
            return [f"{path}: must be at least {wanted}{shown}"]
        case "exclusiveMinimum":
            return [f"{path}: must be greater than {wanted}{shown}"]
        case "maximum":
            return [f"{path}: must be at most {wanted}{shown}"]
        case "minLength":
            return [f"{path}: must not be empty"]
    return [f"{path}: is not valid" if secret else f"{path}: {error.message}"]
