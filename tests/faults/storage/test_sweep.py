"""A sweep of faults that would prove nothing fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faults.faulty import DIE_AFTER, DIE_BEFORE, FAIL_BEFORE
from faults.small_lake import Wrap
from faults.sweep import fault_sweep
from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError

NEVER = frozenset({"exchange"})


def three_calls(lake: object, wrap: Wrap) -> None:
    storage = wrap(SimpleNamespace(create=str, move=str, delete=str))
    try:
        for call in (storage.create, storage.move, storage.delete):
            call()
    except OSError as error:
        raise StorageError(RunCode.STORAGE_FAILED, str(error)) from error


def once(lake: object, wrap: Wrap) -> None:
    """Calls the storage of the lake that is only counted, and no other one."""
    if lake == "whole":
        three_calls(lake, wrap)


@pytest.mark.parametrize(
    ("fault", "places"), [(FAIL_BEFORE, [1, 2, 3]), (DIE_BEFORE, [1, 2, 3]), (DIE_AFTER, [1, 3])]
)
def test_each_call_has_its_fault(fault: str, places: list[int]) -> None:
    assert list(fault_sweep(lambda name: name, three_calls, fault)) == places


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        (once, {}),
        (three_calls, {"calls": NEVER}),
        (three_calls, {"calls": ["move", "move"]}),
        (three_calls, {"only": NEVER}),
        (three_calls, {"least": 4}),
        (lambda lake, wrap: None, {}),
    ],
)
def test_ineffective_fault_sweep_fails(operation: Any, given: dict[str, Any]) -> None:
    """A sweep that injects no fault, or too few, is an error."""
    with pytest.raises(AssertionError):
        list(fault_sweep(lambda name: name, operation, DIE_BEFORE, **given))
