"""An operation on a lake with one fault, at each call at which the fault may strike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import cycle
from typing import Any, TypeVar

import pytest

from faults.faulty import (
    DIE_AFTER,
    DIE_BEFORE,
    FAIL_AFTER,
    FAIL_BEFORE,
    FAIL_FROM_HERE,
    Counting,
    Died,
    Faulty,
)
from faults.small_lake import Wrap
from singer_spark.errors import SingerSparkError

AnyLake = TypeVar("AnyLake")
# `test_storage_faults` sweeps a sync by every fault. For anything else every other call fails, each
# change is made and fails, or fails with all later calls, in turn, and the process dies before each
# change.
SWEEPS = [((FAIL_BEFORE,), 2), ((FAIL_AFTER, FAIL_FROM_HERE), 1), ((DIE_BEFORE,), 1)]
in_turn = pytest.mark.parametrize(
    ("faults", "step"), SWEEPS, ids=["it fails before", "it fails after", "it dies"]
)


def fault_sweep(
    fresh: Callable[[object], AnyLake],
    operation: Callable[[AnyLake, Wrap], object],
    *faults: str,
    at: str | None = None,
    only: frozenset[str] | None = None,
    step: int = 1,
    calls: Iterable[str] = ("create",),
    least: int = 1,
    check: Callable[[AnyLake], object] | None = None,
) -> Iterator[AnyLake]:
    """The lakes that the operation leaves, each after a fault at another call.

    It fails where it would prove nothing: where no call is swept, or most faults do not strike.

    Args:
        fresh: Gives a lake in its state before the operation, by a name.
        operation: Acts on a lake whose calls go through the given proxy.
        faults: The fault; several take turns.
        at: Sweep the calls of this fault instead.
        only: Sweep all calls of these methods, and no other ones.
        step: The distance from a call to the next one.
        calls: Methods that the operation must call, each as often as it is named.
        least: The number of calls, of those that count, that the operation must make.
        check: Looks at the lake that the operation leaves without a fault.
    """
    counting = Counting()
    lake = fresh("whole")
    operation(lake, counting)
    if check is not None:
        check(lake)
    assert Counter(calls) <= Counter(counting.calls)
    assert sum(only is None or name in only for name in counting.calls) >= least
    places = counting.places(at or faults[0]) if only is None else counting.changes(only)
    assert places
    struck = 0
    for nth, fault in zip(places[::step], cycle(faults), strict=False):
        lake = fresh(nth)
        met = _Met(nth, fault, only)
        with suppress(Died if fault in (DIE_BEFORE, DIE_AFTER) else SingerSparkError):
            operation(lake, met)
        struck += any(each.count >= nth for each in met.proxies)
        yield lake
    # Where threads work at once, a run may make a call less than the one that was counted.
    assert 2 * struck > len(places[::step])


class _Met:
    """Puts proxies with one fault around what it is given, and keeps them."""

    def __init__(self, nth: int, fault: str, only: frozenset[str] | None) -> None:
        self._fault = (nth, fault, only)
        self.proxies: list[Faulty] = []

    def __call__(self, inner: Any) -> Faulty:
        self.proxies.append(Faulty(inner, *self._fault))
        return self.proxies[-1]
