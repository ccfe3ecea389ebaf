"""What becomes of columns when schemas change: the rules alone, without files."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from singer_spark.core.lake_type import (
    Array,
    Field,
    LakeType,
    Scalar,
    Struct,
    columns_from_text,
    parse_type,
)
from singer_spark.core.schema_mapping import lake_type
from singer_spark.errors import SchemaError
from target_spark_lake.table.declared_columns import read_as_declared, wider
from target_spark_lake.table.evolution import (
    DISCARD,
    EVOLVE,
    FREEZE,
    Evolution,
    EvolutionRules,
    evolve,
)

SCALARS = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
)
NAMES = ("a", "b", "c", "an odd: <name>", "`", "ä")


def decimals() -> st.SearchStrategy[Scalar]:
    numbers = st.integers(1, 38).flatmap(
        lambda precision: st.tuples(st.just(precision), st.integers(0, precision))
    )
    return numbers.map(lambda digits: Scalar("decimal", *digits))


def scalars() -> st.SearchStrategy[Scalar]:
    named = st.sampled_from([Scalar(name) for name in (*SCALARS, "timestamp", "timestamp_ntz")])
    return named | decimals()


def structs(kinds: st.SearchStrategy[LakeType]) -> st.SearchStrategy[Struct]:
    fields = st.lists(
        st.tuples(st.sampled_from(NAMES), kinds),
        min_size=1,
        max_size=4,
        unique_by=lambda each: each[0],
    )
    return fields.map(lambda each: Struct(tuple(Field(name, kind) for name, kind in each)))


TYPES = st.recursive(scalars(), lambda inner: inner.map(Array) | structs(inner), max_leaves=6)
TABLES = structs(TYPES)
# Of types that often go together.
NUMBERS = structs(
    st.sampled_from([Scalar(name) for name in ("smallint", "int", "bigint")]) | decimals()
)
NEAR = structs(NUMBERS.map(Array) | NUMBERS | st.sampled_from([Scalar("int"), Scalar("bigint")]))


def holds(wide: LakeType, narrow: LakeType) -> bool:
    """Whether every value of a type is one of the other, member by member, without a loss."""
    if isinstance(wide, Struct) and isinstance(narrow, Struct):
        return all(
            each.name in wide.types and holds(wide.types[each.name], each.type) for each in narrow
        )
    if isinstance(wide, Array) and isinstance(narrow, Array):
        return holds(wide.element, narrow.element)
    if isinstance(wide, Scalar) and isinstance(narrow, Scalar):
        return wide == narrow or all(fits(value, wide) for value in extremes(narrow))
    return False


def extremes(kind: Scalar) -> list[tuple[int, int] | str]:
    """The values of a type that are hardest to hold, as digits before and behind the point, or as
    its name.
    """
    bits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}.get(kind.name)
    if bits:
        return [(len(str(2**bits)), 0)]
    return [(kind.precision - kind.scale, kind.scale)] if kind.name == "decimal" else [kind.name]


def fits(value: tuple[int, int] | str, kind: Scalar) -> bool:
    if isinstance(value, str):
        return value == "float" and kind.name == "double"
    (before, behind), most = value, extremes(kind)[0]
    return not isinstance(most, str) and before <= most[0] and behind <= most[1]


def evolved(
    table: Struct, incoming: Struct, rules: EvolutionRules | None = None
) -> Evolution | None:
    try:
        return evolve("s", table, incoming, rules or EvolutionRules())
    except SchemaError:
        return None


@settings(max_examples=50)
@given(st.one_of(st.tuples(NEAR, NEAR), st.tuples(NUMBERS, NUMBERS), st.tuples(TABLES, TABLES)))
def test_evolved_columns_hold_both_and_are_stable(
    both: tuple[Struct, Struct],
) -> None:
    """Evolved columns hold both schemas, and evolving them again changes nothing."""
    table, incoming = both
    evolution = evolved(table, incoming)
    assume(evolution is not None)
    assert evolution is not None
    columns = evolution.columns
    assert holds(columns, table)
    assert holds(columns, incoming)
    assert evolved(columns, incoming) == evolved(columns, table) == Evolution(columns)
    assert in_order(table, columns)
    assert bool(evolution.changes) == (columns != table)


@settings(max_examples=50)
@given(st.one_of(st.tuples(NEAR, NEAR), st.tuples(NUMBERS, NUMBERS), st.tuples(TABLES, TABLES)))
def test_types_do_not_depend_on_schema_order(both: tuple[Struct, Struct]) -> None:
    one, other = (evolved(*pair) for pair in (both, both[::-1]))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert unordered(one.columns) == unordered(other.columns)


def in_order(old: LakeType, new: LakeType) -> bool:
    """Whether the members that were there come first, in their order."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        first = list(new.types)[: len(old.fields)]
        return first == list(old.types) and all(
            in_order(each.type, new.types[each.name]) for each in old
        )
    return not (isinstance(old, Array) and isinstance(new, Array)) or in_order(
        old.element, new.element
    )


def unordered(kind: LakeType) -> object:
    if isinstance(kind, Struct):
        return {name: unordered(each) for name, each in kind.types.items()}
    return [unordered(kind.element)] if isinstance(kind, Array) else str(kind)


@given(scalars(), scalars(), scalars())
def test_type_widening_is_associative(one: Scalar, other: Scalar, third: Scalar) -> None:
    def join(*kinds: Scalar | None) -> Scalar | None:
        first, second = kinds
        return wider(first, second) if first and second else None

    left, right = join(join(one, other), third), join(one, join(other, third))
    if left and right:
        assert left == right


@settings(max_examples=50)
@given(st.one_of(st.tuples(NEAR, NEAR), st.tuples(TABLES, TABLES)))
def test_freeze_accepts_no_table_change(
    both: tuple[Struct, Struct],
) -> None:
    table, incoming = both
    evolution = evolved(table, incoming, EvolutionRules(FREEZE))
    assert evolved(table, table, EvolutionRules(FREEZE)) == Evolution(table)
    if evolution is not None:
        assert evolution.columns == table
        assert holds(table, incoming)
        assert set(table.types) == set(incoming.types)


@settings(max_examples=50)
@given(st.one_of(st.tuples(NEAR, NEAR), st.tuples(TABLES, TABLES)))
def test_discard_leaves_out_only_additions(both: tuple[Struct, Struct]) -> None:
    table, incoming = both
    assert evolved(table, table, EvolutionRules(DISCARD)) == Evolution(table)
    everything, some = evolved(table, incoming), evolved(table, incoming, EvolutionRules(DISCARD))
    if everything is not None:
        assert some is not None
        assert list(some.columns.types) == list(table.types)
        assert holds(everything.columns, some.columns)
        assert bool(some.left_out) == (count(everything.columns) > count(some.columns))


def count(kind: LakeType) -> int:
    if isinstance(kind, Struct):
        return sum(1 + count(each.type) for each in kind)
    return count(kind.element) if isinstance(kind, Array) else 0


@given(TYPES)
@example(parse_type("struct<`a``b`:array<decimal(38,0)>,`x:y`:struct<b:int>>"))
def test_type_round_trips_as_string(kind: LakeType) -> None:
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    "text", ["", "strng", "decimal", "decimal(39,0)", "array<int", "struct<>", "int int", "int,"]
)
def test_invalid_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a type"):
        parse_type(text)


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ("int", "bigint", "bigint"),
        ("bigint", "int", "bigint"),
        ("float", "double", "double"),
        ("decimal(10,2)", "decimal(12,3)", "decimal(12,3)"),
        ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
        ("int", "decimal(5,2)", "decimal(12,2)"),
        ("bigint", "decimal(38,0)", "decimal(38,0)"),
        ("decimal(38,0)", "decimal(3,2)", None),
        ("bigint", "double", None),
        ("bigint", "string", None),
        ("string", "bigint", None),
        ("date", "timestamp", None),
        ("timestamp", "timestamp_ntz", None),
        ("decimal(5,2)", "double", None),
        ("boolean", "int", None),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("array<int>", "int", None),
        ("struct<a:int,b:string>", "struct<c:date,a:bigint>", "struct<a:bigint,b:string,c:date>"),
        ("struct<a:int>", "struct<a:string>", None),
        ("struct<a:int>", "struct<A:int>", None),
        (
            "array<struct<a:array<float>>>",
            "array<struct<b:int,a:array<double>>>",
            "array<struct<a:array<double>,b:int>>",
        ),
    ],
)
def test_types_widen_only_without_loss(old: str, new: str, result: str | None) -> None:
    evolution = evolved(columns_from_text({"x": old}), columns_from_text({"x": new}))
    assert (None if evolution is None else str(evolution.columns.types["x"])) == result


@pytest.mark.parametrize(
    ("old", "new", "declared", "result"),
    [
        ("int", "string", "string", "string"),
        ("int", "int", "string", "string"),
        (None, "int", "bigint", "bigint"),
        ("int", None, "bigint", "bigint"),
        ("date", "timestamp", "timestamp", "timestamp"),
        ("date", "date", "timestamp_ntz", "timestamp_ntz"),
        ("timestamp", "date", "timestamp", "timestamp"),
        ("bigint", "double", "double", "double"),
        ("decimal(5,2)", "double", "double", "double"),
        ("struct<a:int>", "struct<a:string>", "struct<a:string>", "struct<a:string>"),
        ("struct<a:int,b:int>", "struct<a:string>", "struct<a:string>", "struct<a:string,b:int>"),
        ("struct<a:int>", "string", "string", "string"),
        ("array<int>", "array<string>", "array<string>", "array<string>"),
        ("bigint", "bigint", "int", None),
        ("string", "int", "int", None),
        ("timestamp", "timestamp", "date", None),
        ("double", "double", "decimal(12,2)", None),
        ("struct<a:int>", "struct<a:int>", "array<int>", None),
    ],
)
def test_declared_type_widens_but_never_narrows(
    old: str | None, new: str | None, declared: str, result: str | None
) -> None:
    """A declared type permits a change that is not automatic, but never a narrower type."""
    one, other = (
        columns_from_text({"k": "int"} | ({"x": kind} if kind else {})) for kind in (old, new)
    )
    evolution = evolved(
        one, other, EvolutionRules(EVOLVE, {"x": parse_type(declared), "unknown": Scalar("int")})
    )
    assert (None if evolution is None else str(evolution.columns.types["x"])) == result


def test_error_names_columns_types_and_remedies() -> None:
    old = columns_from_text(
        {"a": "bigint", "s": "struct<l:array<struct<d:date>>>", "n": "int", "Case": "int"}
    )
    new = columns_from_text(
        {"a": "string", "s": "struct<l:array<struct<d:timestamp>>>", "n": "double", "case": "int"}
    )
    with pytest.raises(SchemaError) as raised:
        evolve("orders", old, new, EvolutionRules())
    said = str(raised.value)
    assert "stream orders: column a is bigint in the table and string in the new schema" in said
    assert "column s.l[].d is date in the table and timestamp in the new schema" in said
    assert "columns 'Case' and 'case' differ only by case" in said
    assert '{"a": "string", "s": "struct<l:array<struct<d:timestamp>>>", "n": "double"}' in said
    asked = {"a": "string", "s": "struct<l:array<struct<d:timestamp>>>", "n": "double"}
    rules = EvolutionRules(EVOLVE, {name: parse_type(kind) for name, kind in asked.items()})
    del_case = Struct(tuple(each for each in new if each.name != "case"))
    assert evolve("orders", old, del_case, rules).columns.types["n"] == Scalar("double")


def test_freeze_names_all_changes() -> None:
    old = columns_from_text({"a": "int", "gone": "int", "s": "struct<x:int,y:int>"})
    new = columns_from_text({"a": "bigint", "added": "date", "s": "struct<x:int,z:int>"})
    with pytest.raises(SchemaError) as raised:
        evolve("s", old, new, EvolutionRules(FREEZE))
    for said in (
        "column a from int to bigint",
        "new column added (date)",
        "new column s.z (int)",
        "gone no longer",
    ):
        assert said in str(raised.value)
    narrower = columns_from_text({"s": "struct<y:smallint,x:int>", "gone": "int", "a": "tinyint"})
    assert evolve("s", old, narrower, EvolutionRules(FREEZE)).columns == old


NULLABLE_INT, NULLABLE_TEXT = {"type": ["integer", "null"]}, {"type": ["string", "null"]}


@pytest.mark.parametrize(
    ("schema", "declared", "read"),
    [
        (NULLABLE_INT, "int", "int"),
        (NULLABLE_INT, "string", "string"),
        (NULLABLE_INT, "double", "bigint"),
        (NULLABLE_INT, "decimal(12,2)", "decimal(12,2)"),
        ({"type": "number"}, "decimal(12,2)", "decimal(12,2)"),
        ({"type": "number"}, "bigint", "bigint"),
        ({"type": "number", "multipleOf": 0.01}, "double", "double"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "float", "float"),
        (NULLABLE_TEXT, "date", "date"),
        (NULLABLE_TEXT, "timestamp", "timestamp"),
        (NULLABLE_TEXT, "binary", "binary"),
        (NULLABLE_TEXT, "bigint", "string"),
        ({"type": "string", "format": "date-time"}, "timestamp_ntz", "timestamp_ntz"),
        ({"type": "string", "format": "date-time"}, "string", "string"),
        ({"type": "string", "format": "date"}, "timestamp", "date"),
        ({"type": "string", "contentEncoding": "base64"}, "string", "string"),
        ({"type": "boolean"}, "string", "string"),
        ({"type": "object", "properties": {"a": NULLABLE_INT}}, "string", "string"),
        ({"type": "object", "properties": {"a": NULLABLE_INT}}, "struct<a:int>", "struct<a:int>"),
        ({"type": "array", "items": NULLABLE_INT}, "array<string>", "array<string>"),
        ({"type": "array", "items": NULLABLE_INT}, "string", "string"),
        ({}, "bigint", "string"),
    ],
)
def test_values_are_read_as_declared_without_loss(schema: dict, declared: str, read: str) -> None:
    """Values are read as the declared type where another reading would lose precision."""
    changed = read_as_declared({"x": schema}, {"x": parse_type(declared)})["x"]
    assert str(lake_type(changed, "x")) == read


@pytest.mark.parametrize("declared", ["string", "int", "decimal(12,2)"])
def test_declared_type_keeps_nullability(declared: str) -> None:
    null = {"type": "null"}
    for schema, nullable in (
        ({"type": "integer"}, False),
        (NULLABLE_INT, True),
        ({"anyOf": [{"type": "integer"}, null]}, True),
        ({"oneOf": [null, {"type": ["integer"]}]}, True),
    ):
        changed = read_as_declared({"x": schema}, {"x": parse_type(declared)})["x"]
        assert ("null" in changed["type"]) == nullable
