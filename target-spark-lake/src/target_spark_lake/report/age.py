"""Ages, as people read and write them."""

from __future__ import annotations

import re

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def age_seconds(text: str) -> float:
    """Reads `30m`, `6h`, `2d`; a bare number is seconds.

    Raises:
        ValueError: it is no age.
    """
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no age like 30m, 6h or 2d")
    return float(found[1]) * _SECONDS[found[2]]


def age_text(seconds: float) -> str:
    """An age for people, in its two largest units: `2 h 5 min`."""
    left, parts = max(0, int(seconds)), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
