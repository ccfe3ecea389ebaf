"""Storage that fails, dies, or is interrupted at a chosen call: a proxy around the real one."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable
from io import IOBase
from typing import Any

FAIL_BEFORE, FAIL_AFTER, FAIL_FROM_HERE, DIE_BEFORE, DIE_AFTER = (
    "the call fails",
    "the call does its work, then fails",
    "this call and all later ones fail",
    "the process dies before the call",
    "the process dies after the call",
)
# Calls that change nothing.
LOOKS = frozenset({"read", "open", "list", "size", "load_table"})
# What distinguishes two paths of one kind: ids and times of runs, numbers of files.
NUMBERS = re.compile(r"[0-9a-f-]*[0-9][0-9A-Za-z-]*")
FAULTS = (FAIL_BEFORE, FAIL_AFTER, FAIL_FROM_HERE, DIE_BEFORE, DIE_AFTER)


class Died(BaseException):
    """Simulates `kill -9` inside one process; no handler of the run may do anything after it."""


class Proxy:
    """Passes every method call through `around`, everything else straight on."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if not callable(attribute):
            return attribute
        return lambda *args, **kwargs: self.around(name, args, lambda: attribute(*args, **kwargs))

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        raise NotImplementedError


class Counting(Proxy):
    """Keeps the names of all calls of `files`; without any, of the first ones that it is put
    around.
    """

    def __init__(self, inner: Any = None) -> None:
        super().__init__(inner)
        self.calls: list[str] = []
        self._kinds: list[str] = []

    def __call__(self, inner: Any) -> Counting:
        self.inner = inner if self.inner is None else self.inner
        return self

    def places(self, fault: str) -> list[int]:
        """The calls, the first being 1, at which a fault leaves what it does not leave at another
        one.

        To fail behind a look is to fail before it; to die at one is to die behind the change before
        it, or before the next one, and to find a storage gone at one is to find it gone at that
        change. Looks of one kind are one, until something is created: the lock, a claim, the
        journal. To die behind a change is to die before the next one, but for what a run does past
        its storage in between: every other change will do.
        """
        changes = [nth for nth, name in enumerate(self.calls, 1) if name not in LOOKS]
        if fault == DIE_AFTER:
            return changes[::-2][::-1]
        if fault != FAIL_BEFORE:
            return changes
        found, met = [], set[str]()
        for nth, (name, kind) in enumerate(zip(self.calls, self._kinds, strict=True), 1):
            if name not in LOOKS or kind not in met:
                found.append(nth)
            met = set() if name == "create" else {*met, kind}
        return found

    def changes(self, only: frozenset[str]) -> list[int]:
        """The calls of these methods, counted by themselves."""
        return list(range(1, 1 + sum(name in only for name in self.calls)))

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        self._kinds.append(
            " ".join(
                [
                    name,
                    *(
                        NUMBERS.sub("#", str(each))
                        for each in args
                        if isinstance(each, str | tuple)
                    ),
                ]
            )
        )
        return call()


class Watched(Proxy):
    """A reader looks before and after each call."""

    def __init__(self, inner: Any, look: Callable[[], None]) -> None:
        super().__init__(inner)
        self.look = look

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        self.look()
        result = call()
        self.look()
        return result


class Faulty(Proxy):
    """Has one fault at its n-th call, the first being 1; `only` these methods count where given."""

    def __init__(
        self, inner: Any, nth: int, fault: str, only: frozenset[str] | None = None
    ) -> None:
        super().__init__(inner)
        self.only = only
        self.nth = nth
        self.fault = fault
        self.count = 0
        self._lock = threading.Lock()

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        with self._lock:
            counts = self.only is None or name in self.only
            self.count += counts
            here, past = counts and self.count == self.nth, self.count > self.nth
        if past and self.fault in (DIE_BEFORE, DIE_AFTER):
            raise Died
        if here and self.fault == DIE_BEFORE:
            raise Died
        if (here and self.fault == FAIL_BEFORE) or (
            not self.count < self.nth and self.fault == FAIL_FROM_HERE
        ):
            raise OSError(errno.EIO, "injected before the call")
        result = call()
        if not here or self.fault not in (DIE_AFTER, FAIL_AFTER):
            return result
        if isinstance(result, IOBase):
            result.close()  # else nobody does: the caller never sees the file
        if self.fault == DIE_AFTER:
            raise Died
        raise OSError(errno.EIO, "injected after the call")


class Interrupted(Proxy):
    """Does something else, once, right before the first call that fits."""

    def __init__(
        self,
        inner: Any,
        fits: Callable[[str, tuple[Any, ...]], bool],
        meanwhile: Callable[[], None],
    ) -> None:
        super().__init__(inner)
        self.fits = fits
        self.meanwhile: Callable[[], None] | None = meanwhile

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        meanwhile = self.meanwhile
        if meanwhile is not None and self.fits(name, args):
            self.meanwhile = None
            meanwhile()
        return call()
