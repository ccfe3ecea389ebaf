"""Secret arguments of a JVM, passed in files that only their owner can read, as everyone can see a
command line.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence

from singer_spark.core.config_secrets import holds_secret
from singer_spark.core.scratch import scratch_folder

PROPERTIES_FILE = "--properties-file"


def settings_words(conf: Mapping[str, str], *, defaults: str = "") -> list[str]:
    """Spark settings as arguments.

    A file of them begins with the text of `defaults`, which they override.
    """
    secret = {name: value for name, value in conf.items() if holds_secret(name, value)}
    words = [
        word
        for name, value in conf.items()
        if name not in secret
        for word in ("--conf", f"{name}={value}")
    ]
    if not secret:
        return words
    lines = [f"{_property(name)}={_property(value)}\n" for name, value in secret.items()]
    return [PROPERTIES_FILE, _kept("".join([defaults, "\n", *lines])), *words]


def hidden_options(options: Sequence[str]) -> list[str]:
    """Java options, with secret system properties replaced by an argument file that Java reads."""
    found = []
    for option in options:
        name, _, value = option.partition("=")
        if not option.startswith("-D") or not holds_secret(name.removeprefix("-D"), value):
            found.append(option)
            continue
        quoted = option.replace("\\", "\\\\").replace('"', '\\"')
        found.append("@" + _kept(f'"{quoted}"'))
    return found


def _property(text: str) -> str:
    """A text as `java.util.Properties` parses it; everything but letters and digits is escaped."""
    units = text.encode("utf-16-be")
    numbers = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    return "".join(
        chr(each) if chr(each).isascii() and chr(each).isalnum() else f"\\u{each:04x}"
        for each in numbers
    )


def _kept(text: str) -> str:
    """Write the text to a file that is removed with the process; returns its path."""
    descriptor, path = tempfile.mkstemp(prefix="argument-", dir=scratch_folder())
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path
