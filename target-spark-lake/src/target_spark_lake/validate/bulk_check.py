"""Finds rows that are certainly valid by checking a schema's requirements beyond types on whole
Arrow columns.

Arrow's JSON reader is strict: it refuses a number in a text column, a decimal with too many digits,
a duplicate key. What it wrongly accepts is checked here, as are invalid values of typed files.
`record_validator` judges the rows that are not certainly valid: this check may doubt too many rows,
never too few.

The rules for the rows of a typed file decide whether it may be taken as it is. Columns of the
lake's own types hold no values of wrong types. The rest is proven by the footer, or by reading
single columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import (
    FLOATING_TYPES,
    SCALARS,
    STRING,
    Array,
    LakeType,
    Scalar,
    Struct,
)
from singer_spark.core.schema_mapping import JSON_TYPES, json_types, lake_type
from singer_spark.core.sql_type import annotated_type
from target_spark_lake.table.text_columns import ELEMENT
from target_spark_lake.validate.lake_value import GREATEST_EXACT
from target_spark_lake.validate.value_schema import (
    ASSERTIONS,
    FLOATING,
    OTHER_KEYWORDS,
    Limit,
    declared_types,
    has_faithful_branch,
    limits_of,
    plain_branch,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

    from target_spark_lake.table.table_index import ColumnRange

JSON = dict[str, Any]

# The conversion decides whether the day exists.
_PATTERNS = {name: each.pattern for name, each in SCALARS.items() if each.pattern}
_OF_TIMES = ("date", "date-time")
# A number that may be whole, and have more digits than a double keeps.
_LONG_NUMBER = (
    r"[:,\[]\s*-?(?:\d{16,}(?:\.0*)?\s*[,}\]]|\d[\d.]{15,}[eE]\+?\d|\d{17,}(?:\.\d*)?[eE]-)"
)
# Further formats that jsonschema knows for Draft 7; unknown names require nothing.
_UNDECIDED_FORMATS = frozenset(
    {
        *("idn-email", "hostname", "idn-hostname", "ipv6", "iri", "iri-reference", "uri"),
        *("uri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex"),
    }
)
# These refuse something even with an empty schema, an empty list, or true.
_NEVER_TRIVIAL = frozenset({"not", "const", "enum", "contains", "uniqueItems"})


@dataclass(frozen=True)
class JsonText:
    """A column of a record that is kept as JSON text.

    Attributes:
        kinds: The JSON types that it may have.
        location: How its texts are kept, as in `text_columns`; None if they are kept as they are.
    """

    kinds: frozenset[str]
    location: str | None = None


@dataclass(frozen=True)
class ValueCheck:
    """The requirements on values of a column, a member or an element.

    Attributes:
        type: Their lake type.
        present: Whether NULL is invalid.
        finite: Whether NaN and infinities are invalid in a typed file; JSON has none.
        limits: Limits of the values.
        closed: Whether members that the type does not have are invalid, at this level or below.
        parts: Checks of a struct's members by name, or of an array's elements under `ELEMENT`.
        free: Columns of a record outside its type, kept as JSON text.
    """

    type: LakeType
    present: bool = False
    finite: bool = False
    limits: tuple[Limit, ...] = ()
    closed: bool = False
    parts: Mapping[str, ValueCheck] = field(default_factory=dict)
    free: Mapping[str, JsonText] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        """Whether a typed value could be invalid."""
        return bool(self.present or self.finite or self.limits) or any(
            part.is_needed for part in self.parts.values()
        )

    def is_right(self, values: pa.Array, *, typed: bool) -> bool:
        """Whether all values are certainly valid.

        Args:
            values: With the type `type`, or as Arrow reads them from JSON:
                `table.arrow_columns.type_as_read`.
            typed: Whether they come from a typed file.

        Raises:
            pyarrow.ArrowInvalid: a value is invalid: a text is not Unicode, or a decimal has too
            many digits.
        """
        import pyarrow.compute as pc

        if self.present and values.null_count:
            return False
        if isinstance(self.type, Scalar):
            return self._are_right(values, typed)
        if isinstance(self.type, Array):
            return not self.parts or self.parts[ELEMENT].is_right(values.flatten(), typed=typed)
        # NULLs have nothing inside to check.
        rows = values.filter(pc.is_valid(values)) if values.null_count else values
        return all(
            part.is_right(rows.field(name), typed=typed) for name, part in self.parts.items()
        )

    def _are_right(self, values: pa.Array, typed: bool) -> bool:
        import pyarrow.compute as pc

        assert isinstance(self.type, Scalar)
        kind = self.type.name
        if not typed and kind in ("string", "decimal"):
            # The reader accepts any bytes as text, and decimals with more digits than the column
            # has.
            values.validate(full=True)
        if (
            kind in ("float", "double")
            and (self.finite or not typed)
            and not _all(pc.is_finite(values))
        ):
            return False
        if (
            not typed
            and kind in _PATTERNS
            and not _all(pc.match_substring_regex(values, _PATTERNS[kind]))
        ):
            return False
        return all(_all(limit.kept_by(values)) for limit in self.limits)

    def may_be_rounded(self, values: pa.Array, lines: bytes) -> bool:
        """Whether a number of a plain `number` may have more digits than the double it was read as
        from the lines.
        """
        return self._has_great(values) and _found(_LONG_NUMBER, lines)

    def _has_great(self, values: pa.Array) -> bool:
        import pyarrow.compute as pc

        if isinstance(self.type, Scalar):
            if not self.finite or self.type.name != "double":
                return False
            return bool((pc.max(pc.abs(values)).as_py() or 0) >= GREATEST_EXACT)
        if isinstance(self.type, Array):
            return bool(self.parts) and self.parts[ELEMENT]._has_great(values.flatten())
        return any(part._has_great(values.field(name)) for name, part in self.parts.items())

    def decimals(self, name: str = "") -> Iterator[str]:
        """The names of decimal members, at any depth."""
        if isinstance(self.type, Scalar) and self.type.name == "decimal":
            yield name
        for part, check in self.parts.items():
            yield from check.decimals(part)

    def has_quoted_decimals(self, lines: bytes) -> bool:
        """Whether a decimal may be written as text, which the reader would take for a number."""
        names = [re.escape(name) for name in self.decimals()]
        if not names:
            return False
        name = f'"(?:{"|".join(names)})'
        if b"\\" in lines:
            # A name with an escape in it could be any name.
            name = rf'(?:{name}|\\.(?:[^"\\]|\\.)*)'
        return _found(rf'{name}"\s*:\s*"', lines)


def record_check(
    schema: JSON, keys: Iterable[str], texts: Mapping[str, Any] = {}
) -> ValueCheck | None:
    """The check of a stream's records; None if the schema requires more than Arrow can check.

    The `keys` must have a value, whatever their types say; `texts` is where texts get quotes
    (`JsonTexts.locations`).
    """
    if any(isinstance(location, Mapping) for location in texts.values()):
        return None
    properties = schema["properties"]
    required = {*schema.get("required", []), *(key for key in keys if key in properties)}
    free = {
        name: JsonText(
            frozenset(declared_types(branch) or JSON_TYPES)
            - ({"null"} if name in required else frozenset()),
            texts.get(name),
        )
        for name, branch in zip(properties, map(plain_branch, properties.values()), strict=True)
        if has_faithful_branch(properties[name]) and _is_free(branch, name in texts)
    }
    if not set(texts) <= set(free):
        return None
    decided = {name: each for name, each in properties.items() if name not in free}
    whole = {
        "type": "object",
        **schema,
        "properties": decided,
        "required": list(required - set(free)),
    }
    check = _value_check(whole, required=True)
    return replace(check, free=free) if check is not None and not (free and check.closed) else None


def _is_free(branch: JSON, quoted: bool) -> bool:
    """Whether a value is kept as JSON text (its texts `quoted`), and only its type is checked."""
    asking = (ASSERTIONS | OTHER_KEYWORDS) & set(branch)
    trivial = not asking & _NEVER_TRIVIAL and all(_is_empty(branch[name]) for name in asking)
    return (
        trivial and (quoted or json_types(branch) != {"string"}) and lake_type(branch, "") == STRING
    )


def _is_empty(value: Any) -> bool:
    """Whether a keyword's value requires nothing; 1 does, although Python takes it for true."""
    return value is True or (isinstance(value, dict | list) and not value)


def _value_check(schema: JSON, *, required: bool) -> ValueCheck | None:
    if not has_faithful_branch(schema):
        return None
    branch = plain_branch(schema)
    kinds = json_types(branch)
    lake = lake_type(schema, "")
    limits, rest = limits_of(branch, lake)
    parts = _parts(rest, lake)
    if parts is None or not _is_decided(rest, kinds, lake):
        return None
    sql = annotated_type(branch)
    check = ValueCheck(
        lake,
        present=required or "null" not in declared_types(branch),
        finite=lake in FLOATING_TYPES and (sql is None or sql.name not in FLOATING),
        limits=limits,
        parts=parts,
    )
    closed = rest.get("additionalProperties") is False or any(
        part.closed for part in parts.values()
    )
    return replace(check, closed=closed)


def _parts(schema: JSON, lake: LakeType) -> dict[str, ValueCheck] | None:
    """The checks of nested values; None if one of them can't be decided."""
    inner: JSON = {}
    required = set(schema.get("required", ()))
    if isinstance(lake, Struct):
        inner = schema["properties"]
        if required - set(inner):
            return None
    elif isinstance(lake, Array):
        inner = {ELEMENT: schema["items"]}
        # Decimal elements have no name before them.
        if isinstance(lake.element, Scalar) and lake.element.name == "decimal":
            return None
    found = {name: _value_check(each, required=name in required) for name, each in inner.items()}
    return None if None in found.values() else found  # type: ignore[return-value]


def _is_decided(rest: JSON, kinds: set[str], lake: LakeType) -> bool:
    """Whether Arrow and these checks find every violation of the schema."""
    if (ASSERTIONS | {"anyOf", "oneOf"}) & set(rest) or not isinstance(
        rest.get("additionalProperties", True), bool
    ):
        return False
    scale = lake.scale if isinstance(lake, Scalar) and lake.name == "decimal" else None
    if "multipleOf" in rest and (
        scale is None or Decimal(str(rest["multipleOf"])) != Decimal(1).scaleb(-scale)
    ):
        return False
    if lake == Scalar("string"):
        # Values of unknown shape or of several types are kept as JSON text.
        return kinds == {"string"} and rest.get("format") not in _UNDECIDED_FORMATS
    return "string" not in kinds or not rest.get("format") or rest["format"] in _OF_TIMES


def _found(pattern: str, lines: bytes) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.array([lines], pa.large_binary()), pattern)[0].as_py())


def _all(verdicts: pa.Array) -> bool:
    import pyarrow.compute as pc

    # NULLs don't count, and an empty array passes.
    return pc.all(verdicts, min_count=0).as_py() is not False


@dataclass(frozen=True)
class TypedRules:
    """The rules of one stream.

    Attributes:
        columns: The columns that have rules.
        moments: Columns with dates or times, also nested: these must be in the years 1 to 9999.
    """

    columns: Mapping[str, ValueCheck]
    moments: frozenset[str]

    @property
    def provable(self) -> frozenset[str]:
        """The columns whose rules a footer may prove."""
        return frozenset(
            name for name, check in self.columns.items() if check.present or check.limits
        )

    def unproven(self, known: Mapping[str, ColumnRange]) -> dict[str, ValueCheck]:
        """The rules that a footer's statistics of the `provable` columns do not prove, to be
        checked on the values.
        """
        left = {name: _unproven(check, known.get(name)) for name, check in self.columns.items()}
        return {name: check for name, check in left.items() if check.is_needed}


def _unproven(check: ValueCheck, known: ColumnRange | None) -> ValueCheck:
    if known is None:
        return check
    limits = tuple(
        limit for limit in check.limits if not limit.holds_between(known.low, known.high)
    )
    return replace(check, present=check.present and known.nulls != 0, limits=limits)


def typed_rules(
    columns: Struct,
    keys: Iterable[str],
    check: ValueCheck | None,
    *,
    validate: bool,
) -> TypedRules | None:
    """The rules of a stream; None if its records must be checked one by one.

    The `keys` must have a value, whatever the schema says. Without `validate`, the lake's columns
    must only be able to hold the values.
    """
    checks: dict[str, ValueCheck] = {}
    if validate:
        if check is None or check.free:
            return None
        checks = {name: each for name, each in check.parts.items() if each.is_needed}
    for name in keys:
        checks[name] = replace(checks.get(name, ValueCheck(columns.types[name])), present=True)
    moments = (
        each.name for each in columns if "date" in str(each.type) or "timestamp" in str(each.type)
    )
    return TypedRules(checks, frozenset(moments))


def dated(metadata: FileMetaData, indexes: Iterable[int]) -> bool:
    """Whether a footer proves all dates and times in these columns in the years 1 to 9999."""
    for group in range(metadata.num_row_groups):
        for index in indexes:
            found = metadata.row_group(group).column(index).statistics
            if found is None or not (
                found.has_min_max or (found.has_null_count and found.num_values == 0)
            ):
                return False
            try:
                _ = (found.min, found.max)
            except (OverflowError, ValueError):
                return False
    return True
