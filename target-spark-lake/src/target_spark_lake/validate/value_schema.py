"""The JSON Schema of a single value: its unions resolved, and the limits in it that Arrow can check
exactly: bounds, lengths, choices, patterns.

A pattern is only used if Python and RE2 agree on it, or RE2 matches less, because nothing invalid
may pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import INTEGERS, LakeType, Scalar
from singer_spark.core.schema_mapping import admitted_types, is_null, single_branch
from target_spark_lake.validate.patterns import portable

if TYPE_CHECKING:
    import pyarrow as pa

JSON = dict[str, Any]

FLOATING = ("REAL", "DOUBLE PRECISION")
NON_FINITE = ("NaN", "Infinity", "-Infinity")
# Keywords that only jsonschema decides, except those covered by limits.
ASSERTIONS = frozenset(
    "enum const maximum minimum exclusiveMaximum exclusiveMinimum maxLength minLength pattern "
    "additionalItems contains maxItems minItems uniqueItems maxProperties minProperties "
    "patternProperties propertyNames dependencies if then else allOf not $ref".split()
)
OTHER_KEYWORDS = frozenset(
    "properties required items format additionalProperties anyOf oneOf multipleOf".split()
)
# The meaning of each depends on the others beside it.
_OF_MEMBERS = frozenset({"properties", "additionalProperties", "patternProperties"})
LENGTHS = ("minLength", "maxLength")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# Arrow's functions for the values within a bound.
_COMPARISONS = {
    **dict.fromkeys(("minimum", "minLength"), "greater_equal"),
    **dict.fromkeys(("maximum", "maxLength"), "less_equal"),
    "exclusiveMinimum": "greater",
    "exclusiveMaximum": "less",
}
CHOICE, PATTERN = "enum", "pattern"
_INTEGERS: tuple[LakeType, ...] = tuple(map(Scalar, INTEGERS))
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_FORMATS = {
    "uuid": r"^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z",
    "email": "@",
    "time": r"^(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3])(?::[0-5]\d)?)?\z",
    "ipv4": rf"^(?:{_OCTET}\.){{3}}{_OCTET}\z",
}


def plain_branch(schema: JSON) -> JSON:
    """The schema without idle unions: nullable ones, or a date-time beside any string."""
    branches = schema.get("anyOf")
    if branches and "type" not in schema and all(isinstance(each, Mapping) for each in branches):
        plain = [each for each in branches if not (ASSERTIONS | OTHER_KEYWORDS) & set(each)]
        free = {kind for each in plain for kind in declared_types(each)}
        if free and all(set(declared_types(each)) <= free for each in branches):
            return {
                "type": sorted(free),
                **{key: value for key, value in schema.items() if key != "anyOf"},
            }
    branch = single_branch(schema)
    nullable = branch is not schema and "null" not in declared_types(branch)
    if not nullable or not _has_null(schema):
        return branch
    return {**branch, "type": [*declared_types(branch), "null"]}


def has_faithful_branch(schema: JSON) -> bool:
    """Whether `plain_branch` requires as much as the schema: no keyword hides another, and NULL is
    in one branch only.
    """
    branch = single_branch(schema)
    if branch is schema:
        return True
    # One level at a time, as `single_branch` takes them.
    keyword = next(name for name in ("anyOf", "oneOf") if len(_others(schema, name)) == 1)
    (inner,) = _others(schema, keyword)
    nulls = [each for each in schema[keyword] if is_null(each)]
    beside = {name: value for name, value in schema.items() if name != keyword}
    if _asked(beside) & _asked(inner) or any(ASSERTIONS & set(each) for each in nulls):
        return False
    if keyword == "oneOf" and nulls and (len(nulls) > 1 or "null" in admitted_types(inner, inner)):
        return False
    return has_faithful_branch({**beside, **inner})


def _asked(schema: Mapping[str, Any]) -> set[str]:
    """The keywords of a schema that judge values; those for members count as one."""
    judging = (ASSERTIONS | OTHER_KEYWORDS) & set(schema)
    return {"properties" if name in _OF_MEMBERS else name for name in judging}


def _others(schema: JSON, keyword: str) -> list[Any]:
    return [each for each in schema.get(keyword, []) if not is_null(each)]


def _has_null(schema: JSON) -> bool:
    return any(map(is_null, (*schema.get("anyOf", []), *schema.get("oneOf", []))))


def declared_types(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types named by a schema, including `null`."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


@dataclass(frozen=True)
class Limit:
    """A limit of values.

    Attributes:
        keyword: One of `BOUNDS` or `LENGTHS`, `CHOICE` or `PATTERN`.
        value: The bound; the texts or integers to choose from; or an RE2 pattern to search for.
    """

    keyword: str
    value: Any

    def holds_between(self, low: Any, high: Any) -> bool:
        """Whether a bound certainly holds for all values from `low` to `high`, as given by a
        footer.
        """
        if self.keyword not in BOUNDS or low is None or high is None or isinstance(low, str):
            return False
        bound = Decimal(str(self.value)) if isinstance(low, Decimal) else self.value
        compare = {"greater_equal": ge, "greater": gt, "less_equal": le, "less": lt}[
            _COMPARISONS[self.keyword]
        ]
        return bool(
            compare(low if self.keyword in ("minimum", "exclusiveMinimum") else high, bound)
        )

    def kept_by(self, values: pa.Array) -> pa.Array:
        """Which of the values are within the limit; for NULL the result is true or NULL."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.keyword == PATTERN:
            return pc.match_substring_regex(values, self.value)
        if self.keyword == CHOICE:
            values = values if pa.types.is_string(values.type) else pc.cast(values, pa.int64())
            return pc.or_(
                pc.is_null(values), pc.is_in(values, value_set=pa.array(self.value, values.type))
            )
        measured = pc.utf8_length(values) if self.keyword in LENGTHS else values
        if pa.types.is_integer(measured.type):
            bound = pa.scalar(int(self.value), pa.int64())
        else:
            exact = Decimal(str(self.value)) if pa.types.is_decimal(measured.type) else self.value
            bound = pa.scalar(exact, measured.type)
        return pc.call_function(_COMPARISONS[self.keyword], [measured, bound])


def limits_of(schema: JSON, lake: LakeType) -> tuple[tuple[Limit, ...], JSON]:
    """The limits of a value, and its schema (a plain branch) without the keywords they cover."""
    limits: list[Limit] = []
    rest = dict(schema)
    is_text = lake == Scalar("string")
    for keyword in LENGTHS if is_text else BOUNDS:
        value = schema.get(keyword)
        # Draft 4 put a bare true beside the bound; Draft 7 does not know that.
        if keyword in BOUNDS and (
            isinstance(value, bool)
            or (isinstance(value, int | float) and _is_beyond(keyword, value, lake))
        ):
            del rest[keyword]
        elif isinstance(value, int if is_text else int | float) and (
            is_text or _is_comparable(value, lake)
        ):
            limits.append(Limit(keyword, rest.pop(keyword)))
    if is_text and (pattern := portable(rest.get("pattern"))) is not None:
        del rest["pattern"]
        limits.append(Limit(PATTERN, pattern))
    if is_text and schema.get("format") in _FORMATS:
        limits.append(Limit(PATTERN, _FORMATS[rest.pop("format")]))
    if is_text or lake in _INTEGERS:
        limits += _choices(rest, str if is_text else int)
    return tuple(limits), rest


def _is_beyond(keyword: str, bound: float, lake: LakeType) -> bool:
    """Whether every value that the column can hold is within the bound."""
    if lake in _INTEGERS:
        greatest = 1 << 63
    elif isinstance(lake, Scalar) and lake.name == "decimal":
        greatest = 10 ** (lake.precision - lake.scale)
    else:
        return False
    return bound >= greatest if keyword in ("maximum", "exclusiveMaximum") else bound < -greatest


def _is_comparable(bound: float, lake: LakeType) -> bool:
    """Whether Arrow compares the column with the bound exactly."""
    if lake in _INTEGERS:
        return abs(bound) < 2**63 and float(bound).is_integer()
    if not isinstance(lake, Scalar) or lake.name != "decimal":
        return lake == Scalar("double") and abs(bound) < 1e308
    scaled = Decimal(str(bound)).scaleb(lake.scale)
    return scaled == scaled.to_integral_value() and abs(scaled) < 10**lake.precision


def _choices(rest: JSON, kind: type) -> list[Limit]:
    """Remove and return the limit of an enum or const with values of one type, including NULL if
    the type allows it.
    """
    keyword = "enum" if "enum" in rest else "const"
    values = rest["enum"] if "enum" in rest else [rest["const"]] if "const" in rest else []
    chosen = [value for value in values if value is not None]
    plain = all(isinstance(value, kind) and not isinstance(value, bool) for value in chosen)
    fits = kind is str or all(isinstance(value, int) and abs(value) < 2**63 for value in chosen)
    if (
        not chosen
        or not plain
        or not fits
        or ("null" in declared_types(rest) and None not in values)
    ):
        return []
    del rest[keyword]
    return [Limit(CHOICE, tuple(chosen))]
