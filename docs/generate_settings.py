"""Writes docs/use/settings.md from the settings that the programs really have: `python docs/generate_settings.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tap_spark_jdbc.config.config_schema import CONFIG_JSONSCHEMA as TAP
from target_spark_lake.config_schema import CONFIG_JSONSCHEMA as TARGET

PAGE = Path(__file__).with_name("use") / "settings.md"
INTRODUCTION = """\
# Settings

Made from the code by `python docs/generate_settings.py`; a test keeps it true. Every setting can also come from the
environment, with `--config=ENV`: `TAP_SPARK_JDBC_JDBC_URL`, `TARGET_SPARK_LAKE_BUCKET`; lists and objects as JSON.

`${NAME}` in any text of a config, at any depth, is the environment's variable of that name; one that is not set is an
error that names setting and variable. A setting that is a number, a list, … takes its value from a variable too:
`"n_jobs": "${JOBS}"`. A plain `${` is written `$${`; what is no variable's name (Spark's `${env:HOME}`) stays as it is.
"""


def table(program: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """One program's settings as lines of Markdown."""
    yield f"## {program}"
    yield ""
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, each in schema["properties"].items():
        required = name in schema.get("required", [])
        yield f"| `{name}` | {kind(each)} | {'required' if required else default(each)} | {meaning(each)} |"


def kind(setting: Mapping[str, Any]) -> str:
    """The JSON type, without null."""
    declared = setting.get("type", "any")
    names = [declared] if isinstance(declared, str) else [each for each in declared if each != "null"]
    return " or ".join(names)


def default(setting: Mapping[str, Any]) -> str:
    """The default as JSON, or nothing."""
    return f"`{json.dumps(setting['default'])}`" if "default" in setting else ""


def meaning(setting: Mapping[str, Any]) -> str:
    """The description, with the values that are allowed."""
    allowed = [f"`{each}`" for each in setting.get("enum", []) if each is not None]
    said = setting["description"].replace("|", "\\|").rstrip(".") + "."
    return f"{said} One of {', '.join(allowed)}." if allowed else said


def page() -> str:
    """The whole page."""
    tables = ["\n".join(table(*each)) for each in (("tap-spark-jdbc", TAP), ("target-spark-lake", TARGET))]
    return "\n".join([INTRODUCTION, "\n\n".join(tables), ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
