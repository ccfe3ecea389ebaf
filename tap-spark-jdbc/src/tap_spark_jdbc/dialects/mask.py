"""Masks: the replacement of a column's values before anything is written anywhere (plain Python).

A masked value is computed from the value's text, as `type_overrides: text` reads it. So both
readers, and anyone with that text, get the same masked value, and equal values of two tables stay
equal.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import Literal

from singer_spark.errors import register_secret

Kind = Literal["hash", "redact", "null", "last4"]
KINDS: tuple[Kind, ...] = ("hash", "redact", "null", "last4")
REDACTED = "***"
# Texts of at most this length would be shown in full.
SHOWN = 4
_BLOCK = 64
_LENGTHS = {"hash": 64, "last4": SHOWN, "redact": len(REDACTED)}


@dataclass(frozen=True)
class Mask:
    """The mask of one column; NULL stays NULL, whatever the kind.

    Attributes:
        kind: `hash`: HMAC-SHA-256 in hexadecimal; `last4`: the last four characters of longer
            texts; `redact`: a fixed text; `null`: NULL, of the column's own type.
        key: The key of `hash`.
    """

    kind: Kind
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def by(cls, kind: Kind, key: str | None) -> Mask:
        """The mask of this kind.

        Texts derived from its key for Spark are registered with `redact`.
        """
        if kind != "hash" or key is None:
            return cls(kind)
        mask = cls(kind, key.encode())
        for pad in mask._pads():
            register_secret(pad)
        return mask

    @property
    def without_key(self) -> Mask:
        """The mask with a short digest instead of its key: a changed key is noticed, but can't be
        found by guessing.
        """
        return replace(self, key=hmac.digest(self.key, b"resume", "sha256")[:2])

    @property
    def sql_type(self) -> str:
        """The ANSI type of masked values; `null` keeps the column's."""
        return f"VARCHAR({_LENGTHS[self.kind]})"

    @property
    def is_in_select(self) -> bool:
        """Whether the database itself masks, so that no value leaves it."""
        return self.kind in ("redact", "null")

    def select(self, template: str) -> str:
        """The SQL template over `{c}` that replaces a column's unmasked one."""
        if self.kind == "redact":
            return f"CASE WHEN {{c}} IS NOT NULL THEN '{REDACTED}' END"
        if self.kind == "null":
            # NULL of the column's own type, in any database.
            return template.replace("{c}", "(CASE WHEN 1 = 0 THEN {c} END)")
        return template

    def of(self, text: str | None) -> str | None:
        """The masked value for a value with this text."""
        if text is None or self.kind == "null":
            return None
        if self.kind == "hash":
            return hmac.digest(self.key, text.encode(), "sha256").hex()
        return text[-SHOWN:] if self.kind == "last4" and len(text) > SHOWN else REDACTED

    def spark_sql(self, text: str) -> str:
        """The masked value in Spark SQL, given SQL of the text, for masks outside of the SELECT."""
        if self.kind == "hash":
            inner, outer = self._pads()
            hashed = f"sha2(concat(X'{inner}', CAST({text} AS BINARY)), 256)"
            return f"sha2(concat(X'{outer}', unhex({hashed})), 256)"
        shown = f"WHEN char_length({text}) > {SHOWN} THEN right({text}, {SHOWN})"
        return f"CASE WHEN {text} IS NULL THEN NULL {shown} ELSE '{REDACTED}' END"

    def _pads(self) -> tuple[str, str]:
        """The pads of RFC 2104, in hexadecimal: hashing with each in turn gives the HMAC."""
        key = hashlib.sha256(self.key).digest() if len(self.key) > _BLOCK else self.key
        padded = key.ljust(_BLOCK, b"\0")
        inner, outer = (bytes(each ^ pad for each in padded) for pad in (0x36, 0x5C))
        return inner.hex().upper(), outer.hex().upper()
