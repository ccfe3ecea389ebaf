"""JSON Schema as Singer uses it: the Draft 7 of `jsonschema`, with exact numbers, and with checks
of formats and patterns that always end.

`jsonschema` checks some formats of Draft 7 wrongly for some values, or slowly for hostile ones.
They are checked here instead, in time proportional to the length of the text. A test holds these
checks against the JSON Schema Test Suite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import cache, partial
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional

from singer_spark.core.exact_json import to_json
from singer_spark.core.schema_mapping import json_types
from singer_spark.core.sql_type import annotated_type
from target_spark_lake.table.text_columns import canonical
from target_spark_lake.validate.lake_value import MOMENT
from target_spark_lake.validate.patterns import is_found, is_pattern
from target_spark_lake.validate.value_schema import FLOATING, NON_FINITE, plain_branch

if TYPE_CHECKING:
    from jsonschema import FormatChecker, TypeChecker
    from jsonschema.protocols import Validator

# In SQL, times usually have no zone, or one of whole hours.
_CLOCK = re.compile(
    r"((?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60))(?:\.\d+)?"
    r"([Zz]|[+-](?:[01]\d|2[0-3])(?::[0-5]\d)?)?",
    re.ASCII,
)
_LAST_SECOND = timedelta(hours=23, minutes=59)

# RFC 3986's own way to take a reference apart, whose parts can't overlap.
_PARTS = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_AUTHORITY = re.compile(r"(?:([^@\[\]]*)@)?(?:\[([^\[\]@]*)\]|([^\[\]@:]*))(?::[0-9]*)?")
_FUTURE_ADDRESS = re.compile(r"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+")
_UNRESERVED = r"A-Za-z0-9\-._~!$&'()*+,;="
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_BEYOND_ASCII = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14)
)
_BEYOND_ASCII += "\U000e1000-\U000efffd"


# RFC 6570.
_NAME = r"(?:[A-Za-z0-9_]++|%[0-9A-Fa-f]{2})++"
_VARIABLE = rf"{_NAME}(?:\.{_NAME})*+(?::[1-9][0-9]{{0,3}}|\*)?"
_TEMPLATE = re.compile(
    rf"(?:[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_BEYOND_ASCII}{_PRIVATE}]++|%[0-9A-Fa-f]{{2}}"
    rf"|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*+\}})*+"
)
_POINTER = r"(?:/(?:[^~/]++|~[01])*+)*+"
_JSON_POINTER = re.compile(_POINTER, re.DOTALL)
_RELATIVE_POINTER = re.compile(rf"(?:0|[1-9][0-9]*+)(?:#|{_POINTER})", re.DOTALL)
# The longest name of DNS, and the longest text that may be one in another script.
_LONGEST_NAME = 253
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
JSON = dict[str, Any]
# More digits than any column can hold.
_EXACT = Context(prec=1000)


def _text_of(characters: str) -> re.Pattern[str]:
    # Possessive, so that what was matched is not tried in other portions, which would take forever.
    return re.compile(rf"(?:[{characters}]++|%[0-9A-Fa-f]{{2}})*+")


def _parts_of(more: str, private: str) -> tuple[re.Pattern[str], ...]:
    """What user, host, path, query and fragment may consist of, with further characters."""
    plain = _UNRESERVED + more
    return tuple(
        map(_text_of, (f"{plain}:", plain, f"{plain}:@/", f"{plain}:@/?{private}", f"{plain}:@/?"))
    )


_URI, _IRI = _parts_of("", ""), _parts_of(_BEYOND_ASCII, _PRIVATE)


def is_moment(text: str) -> bool:
    """Singer's date-time: RFC 3339's, whose zone may be missing or be whole hours.

    Raises:
        ValueError: there is no such day.
    """
    match = MOMENT.fullmatch(text)
    if match is None:
        return False
    day, clock, fraction, zone = match.groups()
    end = f"{clock}{'.0' if fraction else ''}{zone or ''}"
    datetime.fromisoformat(day)
    return is_clock(end)


def is_clock(text: str) -> bool:
    """Singer's time: RFC 3339's, whose zone may be missing or be whole hours.

    Leap seconds only end a day in UTC.
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        return False
    clock, zone = match.groups()
    if not clock.endswith("60"):
        return True
    minutes = timedelta(hours=int(clock[:2]), minutes=int(clock[3:5]))
    if zone and zone not in "Zz":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:] or 0))
        minutes -= offset if zone[0] == "+" else -offset
    return minutes % timedelta(days=1) == _LAST_SECOND


def _is_reference(parts: tuple[re.Pattern[str], ...], whole: bool, text: str) -> bool:
    match = _PARTS.fullmatch(text)
    assert match is not None
    scheme, authority, path, query, fragment = match.groups()
    user, host, segments, asked, last = parts
    if (scheme is None and whole) or (scheme is not None and not _SCHEME.fullmatch(scheme)):
        return False
    if authority is not None and not _is_authority(user, host, authority):
        return False
    if authority is None and path.startswith("//"):
        return False
    if scheme is None and authority is None and ":" in path.partition("/")[0]:
        return False
    found = ((segments, path), (asked, query or ""), (last, fragment or ""))
    return all(pattern.fullmatch(part) for pattern, part in found)


def _is_authority(user: re.Pattern[str], host: re.Pattern[str], text: str) -> bool:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return False
    name, address, last = match.groups()
    if not user.fullmatch(name or ""):
        return False
    if address is None:
        return host.fullmatch(last) is not None
    return _FUTURE_ADDRESS.fullmatch(address) is not None or _is_ipv6(address)


def _is_ipv6(text: str) -> bool:
    try:
        return not IPv6Address(text).scope_id
    except AddressValueError:
        return False


def _is_hostname(text: str) -> bool:
    labels = text.split(".") if len(text) <= _LONGEST_NAME else [""]
    return all(map(_LABEL.fullmatch, labels)) and all(map(_is_known_label, labels))


def _is_known_label(label: str) -> bool:
    """Whether a label that hyphens mark as one in another script is one."""
    if label[2:4] != "--":
        return True
    from idna import IDNAError, ulabel

    try:
        return ulabel(label.lower()).isascii() is False
    except (IDNAError, UnicodeError):
        return False


def _is_idn_hostname(text: str) -> bool:
    from idna import IDNAError, alabel, check_bidi, ulabel

    labels = _DOTS.split(text) if len(text) <= _LONGEST_NAME else [""]
    try:
        if not all(labels) or len(b".".join(map(alabel, labels))) > _LONGEST_NAME:
            return False
        shown = list(map(ulabel, labels))
        # A label written from right to left subjects all others to the rule, too.
        if any(bidirectional(each) in ("R", "AL", "AN") for label in shown for each in label):
            for label in shown:
                check_bidi(label, check_ltr=True)
    except (IDNAError, UnicodeError):
        return False
    return True


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": is_moment,
    "time": is_clock,
    "hostname": _is_hostname,
    "idn-hostname": _is_idn_hostname,
    "ipv6": _is_ipv6,
    "uri": partial(_is_reference, _URI, True),
    "uri-reference": partial(_is_reference, _URI, False),
    "iri": partial(_is_reference, _IRI, True),
    "iri-reference": partial(_is_reference, _IRI, False),
    "uri-template": lambda text: _TEMPLATE.fullmatch(text) is not None,
    "json-pointer": lambda text: _JSON_POINTER.fullmatch(text) is not None,
    "relative-json-pointer": lambda text: _RELATIVE_POINTER.fullmatch(text) is not None,
    "regex": is_pattern,
}


def draft7(schema: JSON) -> Validator:
    """A validator of values; if a pattern takes too long, it raises SlowPatternError."""
    from referencing import Registry

    exact = json.loads(json.dumps(_as_draft7(schema)), parse_float=Decimal)
    # An empty registry, because a $ref in the tap's schema must not make us read files or contact
    # other machines.
    return _validator()(exact, registry=Registry(), format_checker=draft7_formats())


@cache
def draft7_formats() -> FormatChecker:
    """The formats of Draft 7, and uuid, which it lacks but taps use."""
    from jsonschema import Draft7Validator, FormatChecker

    formats = FormatChecker(formats=())
    uuid = {"uuid": FormatChecker.checkers["uuid"]}
    own: dict[str, Any] = {name: (_of_texts(check), ValueError) for name, check in FORMATS.items()}
    formats.checkers = {**Draft7Validator.FORMAT_CHECKER.checkers, **uuid, **own}
    return formats


def _of_texts(check: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or check(value)


@cache
def _validator() -> type[Validator]:
    from jsonschema import Draft7Validator
    from jsonschema.validators import extend

    def is_integer(checker: TypeChecker, value: Any) -> bool:
        is_number = checker.is_type(value, "number")
        return is_number and Decimal(value) == Decimal(value).to_integral_value()

    def additional(
        validator: Validator, extra: Any, value: Any, schema: JSON
    ) -> Iterator[Exception]:
        patterns = schema.get("patternProperties", {})
        if patterns and isinstance(value, Mapping):
            declared = schema.get("properties", {})
            value = {
                name: value[name]
                for name in value
                if name in declared or not _is_matched(patterns, name)
            }
        yield from Draft7Validator.VALIDATORS["additionalProperties"](
            validator, extra, value, {"properties": schema.get("properties", {})}
        )

    own = {
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": additional,
        "uniqueItems": _unique_items,
    }
    checked: type[Validator] = extend(  # type: ignore[no-untyped-call]
        Draft7Validator,
        own,
        type_checker=Draft7Validator.TYPE_CHECKER.redefine("integer", is_integer),
    )
    return checked


def _is_matched(patterns: Mapping[str, Any], name: str) -> bool:
    return any(is_found(pattern, name) for pattern in patterns)


def _pattern(validator: Validator, pattern: str, value: Any, _: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not is_found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: JSON, value: Any, _: Any) -> Iterator[Exception]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in patterns.items():
        for name, each in value.items():
            if is_found(pattern, name):
                yield from validator.descend(each, schema, path=name, schema_path=pattern)


def _unique_items(validator: Validator, unique: bool, value: Any, _: Any) -> Iterator[Exception]:
    """Like jsonschema's own check, which compares each element with each other one."""
    from jsonschema import ValidationError

    is_judged = unique and validator.is_type(value, "array")
    if is_judged and len({to_json(canonical(each)) for each in value}) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _multiple_of(validator: Validator, step: Any, value: Any, _: Any) -> Iterator[Exception]:
    """Like jsonschema's own check, which rounds to 28 digits and fails on longer numbers."""
    from jsonschema import ValidationError

    if not validator.is_type(value, "number"):
        return
    try:
        left = _EXACT.remainder(Decimal(value), Decimal(step))
    except InvalidOperation:
        left = None
    if left is None or left:
        yield ValidationError(f"{value!r} is not a multiple of {step}")


def _as_draft7(schema: Any) -> Any:
    """Singer's conventions as Draft 7: scale hints, Draft 4's exclusive bounds, NaN as text."""
    if isinstance(schema, list):
        return [_as_draft7(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {
        name: _as_draft7(value)
        for name, value in schema.items()
        if not (name.startswith("exclusiveM") and isinstance(value, bool))
    }
    branch = plain_branch(dict(schema))
    sql = annotated_type(branch)
    if json_types(branch) == {"number"} and sql is not None and sql.name in FLOATING:
        return {"anyOf": [kept, {"enum": list(NON_FINITE)}]}
    return kept
