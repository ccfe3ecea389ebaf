"""`--about` as plain text, with a description of each setting, which singer-sdk's own text leaves
out.
"""

from __future__ import annotations

import json
import re
from textwrap import fill
from typing import Any

from singer_sdk.about import AboutFormatter, AboutInfo

WIDTH = 100
_LINK = re.compile(r" \(\[[^\]]*\]\([^)]*\)\)")


class DescribedText(AboutFormatter, format_name="text"):
    """Replaces the SDK's formatter of this name in its registry."""

    def format_about(self, about_info: AboutInfo) -> str:
        """Name, version, capabilities and settings, as text for users."""
        lines = [f"{about_info.name} {about_info.version} (Meltano SDK {about_info.sdk_version})"]
        lines += [fill(about_info.description or "", WIDTH), ""]
        lines += [
            fill(
                f"Capabilities: {', '.join(map(str, about_info.capabilities))}",
                WIDTH,
                break_on_hyphens=False,
            ),
            "",
        ]
        lines += [
            f"Settings, each also by the environment variable {about_info.env_var_prefix}<NAME>:"
        ]
        required = about_info.settings.get("required", ())
        for name, schema in about_info.settings.get("properties", {}).items():
            lines += ["", f"  {name} ({_kind(schema, required=name in required)})"]
            description = _LINK.sub("", schema.get("description") or "")
            lines += [fill(description, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
        return "\n".join(lines)


def _kind(schema: dict[str, Any], *, required: bool) -> str:
    types = schema.get("type", "any")
    names = [types] if isinstance(types, str) else [each for each in types if each != "null"]
    kind = " or ".join(names)
    if required:
        return f"{kind}, required"
    default = schema.get("default")
    return kind if default is None else f"{kind}, {json.dumps(default)} if not given"
