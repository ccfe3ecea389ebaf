"""Many requests in parallel, if each has to travel over a network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from singer_spark.store.storage import Storage

REQUESTS_AT_ONCE = 16
Item = TypeVar("Item")
Result = TypeVar("Result")


def each(storage: Storage, action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Run the action for all items: one after another on a disk, in parallel in a bucket.

    The results are in the order of the items; if several fail, the error of the first one is
    raised.
    """
    if storage.local:
        return [action(item) for item in items]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return list(pool.map(action, items))
