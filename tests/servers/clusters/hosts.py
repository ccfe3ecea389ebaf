"""Hosts of their own on this machine: network namespaces at one bridge, each with an address and a
loopback of its own.

What listens on this machine's loopback is not there for them, unless `servers.wire` relays it. They
need root and `ip` of iproute2.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
# Addresses for tests of networks, which no other network has (RFC 2544).
SUBNETS = [f"198.18.{number}" for number in range(1, 255)]


@dataclass(frozen=True)
class Host:
    """One of them: its address, and the words before a command that runs there."""

    address: str
    way: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """Hosts, and this machine's address as they know it."""

    here: str
    hosts: tuple[Host, ...]


@contextmanager
def network(size: int, *, apart: bool = True) -> Iterator[Network]:
    """This many hosts, removed at the end; they are addresses of this machine's loopback if it
    allows no others.

    Args:
        size: How many.
        apart: False: addresses of the loopback in any case.
    """
    made = Network(LOOPBACK, tuple(Host(f"127.0.0.{number + 2}", ()) for number in range(size)))
    with ExitStack() as stack:
        if apart:
            try:
                made = _made(size, stack)
            except (OSError, subprocess.CalledProcessError):
                stack.close()
        yield made


def _made(size: int, stack: ExitStack) -> Network:
    name, subnet = f"lake{os.getpid()}", _free_subnet()
    _ip("link", "add", "name", name, "type", "bridge")
    stack.callback(_ip, "link", "delete", name)
    _ip("address", "add", f"{subnet}.1/24", "dev", name)
    _ip("link", "set", name, "up")
    hosts = []
    for number in range(size):
        host, address = f"{name}-{number}", f"{subnet}.{number + 11}"
        _ip("netns", "add", host)
        stack.callback(_ip, "netns", "delete", host)
        _ip("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
        _ip("link", "set", host, "master", name, "up")
        _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", host, "link", "set", device, "up")
        hosts.append(Host(address, ("ip", "netns", "exec", host)))
    return Network(f"{subnet}.1", tuple(hosts))


def _free_subnet() -> str:
    taken = _ip("-brief", "address", "show")
    return next(each for each in SUBNETS if f" {each}." not in taken)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
