"""Human-readable numbers with units."""

from __future__ import annotations

import re

_SIZES = ("B", "kB", "MB", "GB", "TB")
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_AGE_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def size_text(size: float) -> str:
    """A number of bytes, `1.5 kB`; a unit is a thousand of the one before."""
    for unit in _SIZES[:-1]:
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} {_SIZES[-1]}"


def span_text(seconds: float) -> str:
    """A span of time in its two largest units, `2 h 5 min`; below ten seconds with one decimal."""
    if abs(seconds) < 9.95:
        return f"{seconds:.1f} s"
    left = round(abs(seconds))
    parts: list[str] = []
    for unit, length in _SPANS:
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count:,} {unit}" if count else "")
        if len(parts) == 2:
            break
    return ("-" if seconds < 0 else "") + " ".join(part for part in parts if part)


def seconds_of(age: str) -> float | None:
    """The seconds of an age such as `90`, `30m`, `6h` or `2d`; None if it is not one."""
    found = _AGE.fullmatch(age.strip())
    return None if found is None else float(found[1]) * _AGE_SECONDS[found[2]]


def count_text(count: int, noun: str) -> str:
    """A count with its noun: `1 row`, `1,234 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
