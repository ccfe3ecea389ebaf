"""Writes docs/settings.md, and the settings in meltano.yml, from those that the programs really
have.

`python docs/generate_settings.py`
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml
from singer_sdk.helpers.capabilities import FLATTENING_CONFIG, STREAM_MAPS_CONFIG

from singer_spark.core.config_secrets import is_secret_setting
from tap_spark_jdbc.config.settings import CONFIG_JSONSCHEMA as TAP
from target_spark_lake.config.settings import CONFIG_JSONSCHEMA as TARGET

PROGRAMS = {"tap-spark-jdbc": TAP, "target-spark-lake": TARGET}
PROJECT = Path(__file__).parents[1] / "meltano.yml"
# Meltano 4.4 breaks on `kind: decimal`.
KINDS = {"number": "integer"}
PAGE = Path(__file__).with_name("settings.md")
INTRODUCTION = """\
# Settings

Made from the code by `python docs/generate_settings.py`. Every setting can also come from the
environment, with `--config=ENV`: `TAP_SPARK_JDBC_JDBC_URL`, `TARGET_SPARK_LAKE_BUCKET`; lists and
objects are JSON.

In any text of a config, at any depth, `${NAME}` is an environment variable and `${file:PATH}` the
content of a file. A setting that is a number, a list, … takes its value from a variable too:
`"n_jobs": "${JOBS}"`. A variable that is not set is an error that names setting and variable. A
plain `${` is written `$${`; text in `${…}` that is not a variable name (Spark's `${env:HOME}`)
stays as it is. [Secrets](configuration.md#secrets) has the details, and the secret stores of AWS,
Google, Azure and Vault.
"""


def table(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """The settings of an object as lines of Markdown."""
    yield f"## {title}"
    yield ""
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, each in schema["properties"].items():
        required = name in schema.get("required", [])
        yield (
            f"| `{name}` | {kind(each)} | {'required' if required else default(each)} | "
            f"{meaning(each)} |"
        )


def kind(setting: Mapping[str, Any]) -> str:
    """The JSON type, without null."""
    declared = setting.get("type", "any")
    names = (
        [declared] if isinstance(declared, str) else [each for each in declared if each != "null"]
    )
    return " or ".join(names)


def default(setting: Mapping[str, Any]) -> str:
    """The default as JSON, or nothing."""
    return f"`{json.dumps(setting['default'])}`" if "default" in setting else ""


def meaning(setting: Mapping[str, Any]) -> str:
    """The description, with the values that are allowed."""
    allowed = [f"`{each}`" for each in setting.get("enum", []) if each is not None]
    said = re.sub(r"`([^`]*\|[^`]*)`", _code_with_bars, setting["description"]).rstrip(".") + "."
    return f"{said} One of {', '.join(allowed)}." if allowed else said


def _code_with_bars(found: re.Match[str]) -> str:
    """Code that a cell can hold, in GitHub's Markdown and in that of MkDocs."""
    return f"<code>{found[1].replace('|', '&#124;')}</code>"


def tables() -> Iterator[str]:
    """A table of each program, and one of its options of single streams."""
    for program, schema in PROGRAMS.items():
        options = schema["properties"]["stream_options"]["additionalProperties"]
        yield "\n".join(table(program, schema))
        yield "\n".join(table(f"Stream options of {program}", options))


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, "\n\n".join(tables()), ""])


def of_meltano(name: str, setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting as meltano.yml describes it."""
    described: dict[str, Any] = {"name": name}
    if kind(setting) != "string":
        described["kind"] = KINDS.get(kind(setting), kind(setting))
    if "enum" in setting:
        words = [each for each in setting["enum"] if each is not None]
        options = [
            {"label": each.replace("-", " ").replace("_", " ").capitalize(), "value": each}
            for each in words
        ]
        described |= {"kind": "options", "options": options}
    if name == "password":
        described["kind"] = "password"
    if setting.get("default") not in (None, [], {}):
        described["value"] = setting["default"]
    if is_secret_setting(setting):
        described["sensitive"] = True
    # Links lead from settings.md.
    return {**described, "description": re.sub(r" \(\[.*?\]\(.*?\)\)", "", setting["description"])}


def project(text: str) -> str:
    """meltano.yml with the settings of both programs."""
    of_the_sdk = {**STREAM_MAPS_CONFIG["properties"], **FLATTENING_CONFIG["properties"]}
    for program, schema in PROGRAMS.items():
        settings = [of_meltano(*each) for each in {**schema["properties"], **of_the_sdk}.items()]
        written = indent(
            yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=116), "    "
        )
        place = rf"(?s)(- name: {program}\n    namespace:.*?    settings:\n).*?(?=    config:\n)"
        text = re.sub(place, lambda found, written=written: found[1] + written, text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PROJECT.write_text(project(PROJECT.read_text(encoding="utf-8")), encoding="utf-8")
