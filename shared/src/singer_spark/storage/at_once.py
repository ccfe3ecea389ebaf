"""Many requests at once, where each of them has to travel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from singer_spark.storage.storage import Storage

REQUESTS_AT_ONCE = 16
Item = TypeVar("Item")
Result = TypeVar("Result")


def each(storage: Storage, action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Does the action for all items: one after another on a disk, side by side in a bucket.

    Args:
        storage: Where it is done.
        action: Of one item; it must not depend on another's.
        items: All of them.

    Returns:
        The results, in the order of the items; of several that fail the first one's error is raised.
    """
    if storage.local:
        return [action(item) for item in items]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return list(pool.map(action, items))
