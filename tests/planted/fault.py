"""One fault: what is changed in the sources, and which tests must notice."""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "shared": "shared/src/singer_spark",
    "tap": "tap-spark-jdbc/src/tap_spark_jdbc",
    "target": "target-spark-lake/src/target_spark_lake",
}


@dataclass(frozen=True)
class Fault:
    """A change of one file.

    Attributes:
        name: What is wrong then.
        file: Package and module.
        right: A text that occurs there once.
        wrong: What takes its place.
        tests: Arguments of pytest: what must notice.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def path(self) -> str:
        package, _, module = self.file.partition(":")
        return f"{SOURCES[package]}/{module}"
