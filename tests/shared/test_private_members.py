"""Private members of libraries are used in one module for each library alone, which names them: a
version that has dropped one is met here, and not by a user.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from singer_spark.engine import spark_versions
from singer_spark.program import singer_sdk_hooks
from tap_spark_jdbc.binlog import dump
from target_spark_lake.iceberg_log import producer

ROOT = Path(__file__).parents[2]
SOURCES = tuple(
    path
    for package in ("shared", "tap-spark-jdbc", "target-spark-lake")
    for path in sorted((ROOT / package / "src").rglob("*.py"))
)
ADAPTERS = (spark_versions, singer_sdk_hooks, producer, dump)
# PySpark's are looked for in `test_spark_versions`, as some are the JVM's.
BY_OWNER = [
    (owner, name)
    for adapter in (singer_sdk_hooks, producer, dump)
    for owner, names in adapter.PRIVATE.items()
    for name in names
]
DECLARED = {name for _, name in BY_OWNER} | {each.name for each in spark_versions.PRIVATE}
LIBRARIES = "pyspark|py4j|pyiceberg|singer_sdk|jsonschema|referencing|pymysql"
# A member somewhere in a library, as text.
NAMED = re.compile(rf"\b(?:{LIBRARIES})(?:\.\w+)*[.:]_[a-z]\w*", re.IGNORECASE)
PRIVATE = re.compile(r"\b_[A-Za-z]\w*")
# Python documents these.
DOCUMENTED = {"os._exit", "sys._getframe", "import _thread"}
# These it does not: each where it is used, and only there.
OF_PYTHON = {"python_tasks.py": {"dataclasses._FIELD"}}
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
# Functions that take a member's name as text.
BY_NAME = {
    *("getattr", "setattr", "delattr", "hasattr", "attrgetter", "methodcaller"),
    *("import_module", "__import__", "getattr_static", "find_spec"),
}


def is_private(name: str) -> bool:
    return PRIVATE.fullmatch(name) is not None


def is_private_module(name: str) -> bool:
    return any(is_private(part) for part in name.split("."))


class Uses(ast.NodeVisitor):
    """Collects what may be private members of a library, in the source of a module.

    `self` and `cls` of a class, and `super()`, are left to `test_no_class_uses_inherited_members`.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.found: list[str] = []
        self._own = set(_members(tree)) - DECLARED
        self._itself: list[str] = []
        self._in_class = False
        self.visit(tree)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, self._in_class = self._in_class, True
        self.generic_visit(node)
        self._in_class = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args]
        first = arguments[0] if self._in_class and arguments else None
        is_itself = first is not None and first.annotation is None and first.arg in ("self", "cls")
        before, self._in_class = self._in_class, False
        names = {each.arg for each in [*arguments, *node.args.kwonlyargs]}
        shadowed, kept = names & {"self", "cls"}, self._itself
        if is_itself and first is not None:
            self._itself = [first.arg]
        elif shadowed:
            self._itself = []
        self.generic_visit(node)
        self._in_class, self._itself = before, kept

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            if is_private_module(each.name):
                self.found.append(f"import {each.name}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for each in node.names:
            if is_private_module(module) or is_private(each.name) or each.name == "*":
                self.found.append(f"from {module} import {each.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = node.value
        is_itself = isinstance(base, ast.Name) and base.id in self._itself
        is_super = isinstance(base, ast.Call) and ast.unparse(base) == "super()"
        if (
            is_private(node.attr)
            and node.attr not in self._own | OF_NAMED_TUPLES
            and not (is_itself or is_super)
        ):
            self.found.append(ast.unparse(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        if name in BY_NAME:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if any(isinstance(each, str) and is_private_module(each) for each in texts):
                self.found.append(ast.unparse(node))
        for each in node.keywords:
            if each.arg is not None and is_private(each.arg):
                self.found.append(f"{name}({each.arg}=)")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if (
            isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
            and is_private_module(node.slice.value)
            and re.search(r"__dict__$|^vars\(|modules$", ast.unparse(node.value))
        ):
            self.found.append(ast.unparse(node))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and (
            (is_private(node.value) and node.value in DECLARED) or NAMED.search(node.value)
        ):
            self.found.append(repr(node.value))


def _members(tree: ast.AST) -> Iterator[str]:
    """The names that the module's own classes define."""
    for kind in ast.walk(tree):
        if not isinstance(kind, ast.ClassDef):
            continue
        for each in kind.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield each.name
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id
            elif isinstance(each, ast.Assign):
                yield from (name.id for name in each.targets if isinstance(name, ast.Name))
        for each in ast.walk(kind):
            if (
                isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and isinstance(each.value, ast.Name)
                and each.value.id == "self"
            ):
                yield each.attr


def _uses(source: str, name: str = "") -> list[str]:
    allowed = DOCUMENTED | OF_PYTHON.get(name, set())
    return [each for each in Uses(ast.parse(source)).found if each not in allowed]


def _named(adapter: Any) -> str:
    """All private members that an adapter names, as one text."""
    return str(adapter.PRIVATE)


def test_private_members_stay_in_their_modules() -> None:
    adapters = {Path(inspect.getfile(each)) for each in ADAPTERS}
    assert adapters <= {*SOURCES}
    found = {
        str(path.relative_to(ROOT)): used
        for path in SOURCES
        if path not in adapters and (used := _uses(path.read_text("utf-8"), path.name))
    }
    assert found == {}


@pytest.mark.slow
def test_no_class_uses_inherited_members() -> None:
    """A class that derives from a library's neither overrides nor reads what is private there."""
    script = Path(__file__).with_name("inherited_members.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [line.split(":") for line in done.stdout.splitlines()]
    # The adapters themselves: it does look.
    assert {module for module, _ in found} == {producer.__name__, singer_sdk_hooks.__name__}
    named = _named(producer) + _named(singer_sdk_hooks)
    assert [member for _, member in found if member.partition(".")[2] not in named] == []


@pytest.mark.parametrize("owner, name", BY_OWNER, ids=lambda each: each)
def test_installed_version_has_private_member(owner: str, name: str) -> None:
    module, _, kind = owner.partition(":")
    found: Any = importlib.import_module(module)
    if kind:
        found = getattr(found, kind)
    is_set = re.search(rf"\bself\.{name}(: .+)? = ", inspect.getsource(found))
    assert name in dir(found) or is_set, f"{owner} has no {name} any more"


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda each: each.__name__)
def test_adapter_names_all_private_members_in_use(adapter: Any) -> None:
    """It also names none that it does not use."""
    source = inspect.getsource(adapter)
    used = {name for each in Uses(ast.parse(source)).found for name in PRIVATE.findall(each)}
    assert {name for name in used if name not in _named(adapter)} == set()
    members = set(PRIVATE.findall(_named(adapter)))
    assert [name for name in members if len(re.findall(rf"\b{name}\b", source)) < 2] == []


@pytest.mark.parametrize(
    "source",
    (
        "from singer_sdk.helpers._state import StateWriter",
        "from pyiceberg.table.update.snapshot import _OverwriteFiles",
        "if TYPE_CHECKING:\n    from referencing._core import Resolver",
        "import pyspark._globals",
        "from pyspark import *",
        "context._jsc.hadoopConfiguration()",
        "context._anything_new()",
        "f(x)._jrdd.collect()",
        "def f(self):\n    return self._jvm",
        "class A:\n    def f(self: SparkContext):\n        return self._jvm",
        "class A:\n    def f(self):\n        def g(self):\n            return self._jvm",
        "class A:\n    _jvm = None\n    def f(self, other):\n        return other._jvm",
        "getattr(error, '_origin', None)",
        "getattr(error, '_anything_new', None)",
        "setattr(SparkContext, '_gateway', None)",
        "operator.attrgetter('_jvm.java')(context)",
        "name = '_jvm'",
        "vars(context)['_anything_new']",
        "context.__dict__['_anything_new']",
        "sys.modules['singer_sdk.helpers._state']",
        "import_module('singer_sdk.helpers._state')",
        "path = f'pyiceberg.table._private{x}'",
        "SparkConf(_jvm=jvm)",
    ),
)
def test_private_member_use_is_found(source: str) -> None:
    assert _uses(source)


@pytest.mark.parametrize(
    "source",
    (
        "class A:\n    _x = 1\n    def f(self, other):\n        return self._x + other._x",
        "class A:\n    def f(self):\n        return lambda: self._anything",
        "class A(B):\n    def _f(self):\n        return super()._f()",
        "os._exit(1)",
        "Sum._fields",
        "a.__dict__",
        "column = '_sdc_sequence'",
    ),
)
def test_use_of_own_private_member_is_allowed(source: str) -> None:
    assert not _uses(source)
