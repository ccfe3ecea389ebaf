"""Writes the tables of error codes in docs/troubleshooting.md, from the codes that the programs
really have.

`python docs/generate_errors.py`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from singer_spark.error_codes import ErrorCode, RunCode
from tap_spark_jdbc.error_codes import TapCode
from target_spark_lake.error_codes import LakeCode

PAGE = Path(__file__).with_name("troubleshooting.md")
FAMILIES: dict[str, type[ErrorCode]] = {
    "RUN: either program": RunCode,
    "TAP: tap-spark-jdbc": TapCode,
    "LAKE: target-spark-lake and spark-lake": LakeCode,
}
INTRODUCTION = """\
Made from the code by `python docs/generate_errors.py`. An error shows its code before its message:
`tap-spark-jdbc: TAP-008 stream public-orders: …`. A code names one cause and is permanent: it is
never given to another cause. The message names the stream, the file or the setting. An error that
has another error as its cause shows both codes.
"""


def table(title: str, codes: type[ErrorCode]) -> Iterator[str]:
    """The codes of a family as lines of Markdown."""
    yield f"### {title}"
    yield ""
    yield "| code | what happened | what to do |"
    yield "|---|---|---|"
    for each in sorted(codes, key=lambda code: code.number):
        yield f"| `{each.number}` | {each.cause} | {each.remedy} |"
    yield ""


def page(text: str) -> str:
    """The page with the tables between its two marks."""
    lines = [line for family in FAMILIES.items() for line in table(*family)]
    made = "\n".join([INTRODUCTION, *lines])
    place = r"(?s)(<!-- error codes: begin -->\n).*?(<!-- error codes: end -->)"
    return re.sub(place, lambda found: f"{found[1]}{made}{found[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
