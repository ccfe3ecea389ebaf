"""Py4J's gateway to Spark's JVM: started early in the background, and usable before a Spark session
is made in it.

Only Py4J is imported here: PySpark, whose import takes as long as the JVM's start, is only needed
for a session.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from singer_spark.engine.spark_jvm import Gateway, end_jvm
from singer_spark.engine.spark_versions import forget_gateway, gateway_of_pyspark

_importing = threading.Lock()
_opening = threading.Lock()


class _Opened:
    """The connection to this process's only JVM.

    Attributes:
        starting: The JVM's address, or the error that it ended with; None if none was started.
        jars: The jars on its class path besides Spark's.
        gateway: Py4J's gateway, once it was requested.
    """

    def __init__(self) -> None:
        self.starting: Future[Gateway] | None = None
        self.jars: tuple[str, ...] = ()
        self.gateway: Any = None


_opened = _Opened()


def begin(start: Callable[[], Gateway], jars: tuple[str, ...]) -> None:
    """Start the JVM in the background, unless there is one.

    The jars are on its class path besides Spark's.

    `start` starts it and waits for it; its errors are raised where the JVM is requested.
    """
    with _opening:
        if is_begun():
            return
        thread = ThreadPoolExecutor(1, thread_name_prefix="jvm")
        _opened.starting, _opened.jars = thread.submit(start), jars
        thread.shutdown(wait=False)


def is_begun() -> bool:
    """Whether there is a JVM, or one that is starting."""
    return _opened.starting is not None or gateway_of_pyspark() is not None


def lacking(jars: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the jars that are not on the JVM's class path."""
    return tuple(jar for jar in jars if jar not in _opened.jars)


def import_py4j() -> None:
    """Import all of Py4J in one thread.

    To be called before anything else imports it, including PySpark.

    Two of its modules import each other. If two threads import them at once, one gets a partial
    module, which does not support arrays yet.
    """
    with _importing:
        importlib.import_module("py4j.clientserver")


def gateway() -> Any:
    """Py4J's gateway to the JVM that was begun; waits for it."""
    found = gateway_of_pyspark()
    if found is not None:
        return found
    # Threads that read slices may be the first to need it.
    with _opening:
        if _opened.gateway is None:
            _opened.gateway = _connect(_address())
    return _opened.gateway


@contextmanager
def known_to_pyspark() -> Iterator[None]:
    """Let PySpark use the JVM that was begun instead of starting one; waits for it."""
    if gateway_of_pyspark() is not None:
        yield
        return
    address = _address()
    os.environ["PYSPARK_GATEWAY_PORT"] = str(address.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = address.secret
    try:
        yield
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def close() -> None:
    """End the JVM; another one may be begun."""
    of_pyspark = gateway_of_pyspark()
    for each in (_opened.gateway, of_pyspark):
        if each is not None:
            each.shutdown()
    if of_pyspark is not None:
        forget_gateway()
    _opened.starting, _opened.jars, _opened.gateway = None, (), None
    end_jvm()


def _address() -> Gateway:
    """The JVM's address; if it failed to start, another one may be begun."""
    assert _opened.starting is not None, "no JVM was begun"
    try:
        return _opened.starting.result()
    except Exception:
        _opened.starting = None
        raise


def _connect(address: Gateway) -> Any:
    """Connect as PySpark does, as the JVM's side expects."""
    import_py4j()
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import GatewayParameters, JavaGateway

    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true":
        java = JavaParameters(port=address.port, auth_token=address.secret, auto_convert=True)
        return ClientServer(
            java_parameters=java, python_parameters=PythonParameters(port=0, eager_load=False)
        )
    return JavaGateway(
        gateway_parameters=GatewayParameters(
            port=address.port, auth_token=address.secret, auto_convert=True
        )
    )
