"""An operation on a lake with one fault, at each call at which the fault may strike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import TypeVar

from faults.faulty import Counting, Died, Faulty
from faults.small_lake import Wrap
from singer_spark.errors import SingerSparkError

AnyLake = TypeVar("AnyLake")


def fault_sweep(
    fresh: Callable[[object], AnyLake],
    operation: Callable[[AnyLake, Wrap], object],
    *faults: str,
    at: str | None = None,
    only: frozenset[str] | None = None,
    step: int = 1,
    calls: Set[str] = frozenset({"create"}),
) -> Iterator[AnyLake]:
    """The lakes that the operation leaves, each after a fault at another call.

    Args:
        fresh: Gives a lake in its state before the operation, by a name.
        operation: Acts on a lake whose calls go through the given proxy.
        faults: The fault; several take turns.
        at: Sweep the calls of this fault instead.
        only: Sweep all calls of these methods, and no other ones.
        step: The distance from a call to the next one.
        calls: Methods that the operation must call: a sweep that misses them proves nothing.
    """
    counting = Counting()
    operation(fresh("whole"), counting)
    assert calls <= set(counting.calls)
    places = counting.places(at or faults[0]) if only is None else counting.changes(only)
    assert places
    for nth, fault in zip(places[::step], cycle(faults), strict=False):
        lake = fresh(nth)
        with suppress(SingerSparkError, Died):
            operation(lake, partial(Faulty, nth=nth, fault=fault, only=only))
        yield lake
