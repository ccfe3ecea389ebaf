"""The standard target tests of singer-sdk, each with a look at what the lake then holds."""

from __future__ import annotations

from typing import Any

import pytest
from singer_sdk.testing import SuiteConfig, get_target_test_class
from singer_sdk.testing.runners import TargetTestRunner
from singer_sdk.testing.suites import SingerTestSuite, target_tests

from target.loading import Lake
from target_spark_lake.target import TargetSparkLake

# Test, then stream folder, then the columns to read and the rows that must be there.
EXPECTED: dict[str, dict[str, tuple[str, list[tuple[Any, ...]]]]] = {
    "array_data": {
        "test_array_data": (
            "id, fruits",
            [
                (1, ["apple", "orange", "pear"]),
                (2, ["banana", "apple"]),
                (3, ["pear"]),
                (4, ["orange", "banana", "apple", "pear"]),
            ],
        )
    },
    "camelcase": {
        "TestCamelcase": (
            "Id, clientName",
            [("1", "Gitter Windows Desktop App"), ("2", "Gitter iOS App")],
        )
    },
    "camelcase_complex_schema": {},
    "cli_prints": {},
    "duplicate_records": {
        "test_duplicate_records": ("id, metric", [(1, 1), (1, 10), (1, 100), (2, 2), (2, 20)])
    },
    "encoded_string_data": {
        "test_strings": (
            "id, info",
            [
                (1, "simple string 2837"),
                (2, "απλή συμβολοσειρά"),
                (3, "简单的字串"),
                (4, "chaîne simple"),
                (5, 'quoted "string"'),
                (6, 'various " \\ / \n escape sequences'),
                (7, "m"),
                (8, "ā"),
                (9, "ƙ"),
                (10, "Double quoting: \\u0000 \\u0041 \\u0001"),
                (11, "Control Characters in string: \x00 A \x01"),
            ],
        ),
        "test_strings_in_objects": (
            "id, info.name, length(info.value)",
            [
                (1, "simple", 18),
                (2, "greek", 17),
                (3, "chinese", 5),
                (4, "french", 13),
                (5, "quoted string", 15),
                (6, "escape sequences", 32),
                (7, "unicode", 1),
                (8, "unicode", 1),
                (9, "unicode", 1),
                (10, "Double quoting", 21),
                (11, "Control Characters in string", 5),
            ],
        ),
        "test_strings_in_arrays": (
            "id, strings",
            [
                (1, ["simple string", "απλή συμβολοσειρά", "简单的字串"]),
                (2, ["chaîne simple", 'quoted "string"']),
                (3, ['various " \\ / \n escape sequences']),
                (4, ["m", "ā", "ƙ"]),
                (5, ["aaa", "Double quoting: \\u0000 \\u0041 \\u0001"]),
                (6, ["bbb", "Control Characters in string: \x00 A \x01"]),
            ],
        ),
    },
    "invalid_schema": {},
    "no_primary_keys": {"test_no_pk": ("id, metric", [(1, 11), (2, 22), (3, 33)])},
    "optional_attributes": {
        "test_optional_attributes": (
            "id, optional",
            [(1, "This is optional"), (2, None), (3, "Also optional"), (4, None)],
        )
    },
    "pk_updates": {"example_stream": ("id, name", [(1, "Alice"), (2, "Bob")])},
    "record_before_schema": {},
    "record_missing_key_property": {},
    "record_missing_fields": {
        "record_missing_fields": ("id, optional", [(1, "now you see me"), (2, None)])
    },
    "schema_no_properties": {
        "test_object_schema_with_properties": (
            "object_store.id, object_store.metric",
            [(1, 187), (2, 203)],
        ),
        "test_object_schema_no_properties": (
            "object_store",
            [('{"id":1,"metric":1}',), ('{"id":2,"metric":2}',)],
        ),
    },
    "schema_updates": {
        "test_schema_updates": (
            "id, a1, a3, a5, a6",
            [
                (1, 101.0, None, None, None),
                (2, 102.0, True, None, None),
                (3, 103.0, False, ["banana", "apple"], None),
                (4, 104.0, True, ["orange", "pear"], None),
                (5, 105.0, False, ["apple"], 985),
                (6, 106.0, True, ["banana", "orange"], 341),
            ],
        )
    },
    "special_chars_in_attributes": {
        "test%3ASpecialChars%21in%3Fattributes": (
            '_id, d.env, d."agent:type", d."agent:os:version", _sdc_table_version',
            [("a2e98886", "prod", "desktop", "10.13.1", 1541199424491)],
        )
    },
}


def reading(test_class: type) -> type:
    """The SDK's test, which asserts little, with a look at the lake behind it."""

    class Reading(test_class):
        def validate(self) -> None:
            lake: Lake = self.resource
            tables = EXPECTED[self.name]
            for stream, (columns, rows) in tables.items():
                assert lake.rows(stream, columns) == rows
            assert lake.tables() == sorted(tables)

    return Reading


SUITE = SingerTestSuite(kind="target", tests=[reading(each) for each in target_tests.tests])
StandardTests = get_target_test_class(
    TargetSparkLake, custom_suites=[SUITE], include_target_tests=False
)


class TestStandardTarget(StandardTests):
    """Each test with a lake of its own."""

    @pytest.fixture
    def resource(self, spark: object, tmp_path) -> Lake:
        return Lake(tmp_path / "lake")

    @pytest.fixture
    def runner(self, resource: Lake) -> TargetTestRunner:
        config = {
            "bucket": str(resource.folder),
            "pipeline": "test",
            "spark": {"master": "local[2]"},
        }
        return TargetTestRunner(
            target_class=TargetSparkLake, config=config, suite_config=SuiteConfig()
        )


def test_all_sdk_target_tests_are_checked() -> None:
    """Each standard target test of singer-sdk is run and has an expected result in the lake."""
    assert {each.name for each in target_tests.tests} == set(EXPECTED)
    assert {f"test_target_{name}" for name in EXPECTED} <= set(dir(TestStandardTarget))
