"""The formats of Draft 7 whose checks in `jsonschema` are wrong about some values, or slow with
hostile ones.

Each takes time in proportion to a text's length. Their official judge is the JSON Schema Test
Suite, which a test asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from ipaddress import AddressValueError, IPv6Address
from unicodedata import bidirectional

from target_spark_lake.validate.lake_value import MOMENT
from target_spark_lake.validate.patterns import is_pattern

# In SQL times mostly have no zone, or one of whole hours.
_CLOCK = re.compile(
    r"((?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60))(?:\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3])(?::[0-5]\d)?)?",
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


def _text_of(characters: str) -> re.Pattern[str]:
    # Possessive: what was taken is not tried in other portions, which would take for ever.
    return re.compile(rf"(?:[{characters}]++|%[0-9A-Fa-f]{{2}})*+")


def _parts_of(more: str, private: str) -> tuple[re.Pattern[str], ...]:
    """What user, host, path, query and fragment may consist of, with further characters."""
    plain = _UNRESERVED + more
    return tuple(
        map(_text_of, (f"{plain}:", plain, f"{plain}:@/", f"{plain}:@/?{private}", f"{plain}:@/?"))
    )


_URI, _IRI = _parts_of("", ""), _parts_of(_BEYOND_ASCII, _PRIVATE)

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
    user, host, segments, asked, place = parts
    if (scheme is None and whole) or (scheme is not None and not _SCHEME.fullmatch(scheme)):
        return False
    if authority is not None and not _is_authority(user, host, authority):
        return False
    if authority is None and path.startswith("//"):
        return False
    if scheme is None and authority is None and ":" in path.partition("/")[0]:
        return False
    found = ((segments, path), (asked, query or ""), (place, fragment or ""))
    return all(pattern.fullmatch(part) for pattern, part in found)


def _is_authority(user: re.Pattern[str], host: re.Pattern[str], text: str) -> bool:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return False
    name, address, place = match.groups()
    if not user.fullmatch(name or ""):
        return False
    if address is None:
        return host.fullmatch(place) is not None
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
        # A label from right to left puts all others under the rule, too.
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
