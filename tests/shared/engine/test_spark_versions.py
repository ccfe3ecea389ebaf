"""The private members of Spark that are used: a new version that has changed one is named here, not
by a user.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from singer_spark.engine.spark_versions import PRIVATE, PrivateMember, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
USED = [each for each in PRIVATE if each.is_used]
OF_PYTHON = [each for each in USED if ":" in each.owner]
OF_THE_JVM = [each for each in USED if ":" not in each.owner]


def named(member: PrivateMember) -> str:
    return f"{member.owner}.{member.name}"


@pytest.mark.parametrize("member", OF_THE_JVM, ids=named)
def test_private_member_of_spark(spark: SparkSession, member: PrivateMember) -> None:
    """The installed version has it, with as many arguments as are given."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = jvm.java.lang.Class.forName(member.owner, False, loader)
    if member.name == "<init>":
        found = list(kind.getConstructors())
    else:
        found = [each for each in kind.getMethods() if each.getName() == member.name]
    assert member.arguments in {each.getParameterCount() for each in found}


@pytest.mark.parametrize("member", OF_PYTHON, ids=named)
def test_private_member_of_pyspark(member: PrivateMember) -> None:
    """The installed version has it."""
    module, _, name = member.owner.partition(":")
    owner = getattr(importlib.import_module(module), name)
    assert hasattr(owner, member.name) or f"self.{member.name}" in inspect.getsource(owner)


def test_packages_support_same_spark_versions() -> None:
    """All three packages allow the same versions, and this environment has one of them."""
    asked = set()
    for package in ("shared", "tap-spark-jdbc", "target-spark-lake"):
        project = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]
        asked |= {
            str(need.specifier)
            for need in map(Requirement, project["dependencies"])
            if need.name == "pyspark"
        }
    assert asked == {"<4.4,>=3.5.6"}
    assert (3, 5) <= spark_version() < (4, 4)
