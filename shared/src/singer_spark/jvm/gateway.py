"""Spark's JVM as Py4J reaches it: started ahead in the background, and of use before any Spark session is made in it.

Only Py4J is imported here: PySpark, which takes as long as the JVM's own start, is for those who need a session.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from singer_spark.jvm.spark_jvm import Gateway, end_jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_importing = threading.Lock()


class _Opened:
    """What this process has of its one JVM.

    Attributes:
        starting: The JVM's answer, or the error that it ended with; None where none was started.
        jars: What lies on its class path beside Spark.
        gateway: Py4J's own, once somebody asked for it.
    """

    def __init__(self) -> None:
        self.starting: Future[Gateway] | None = None
        self.jars: tuple[str, ...] = ()
        self.gateway: Any = None


_opened = _Opened()


def begin(start: Callable[[], Gateway], jars: tuple[str, ...]) -> None:
    """Starts the JVM in the background, unless there is one.

    Args:
        start: Starts it and waits for it; what it raises is raised by whoever asks for the JVM.
        jars: What lies on its class path beside Spark.
    """
    if is_begun():
        return
    thread = ThreadPoolExecutor(1, thread_name_prefix="jvm")
    _opened.starting, _opened.jars = thread.submit(start), jars
    thread.shutdown(wait=False)


def is_begun() -> bool:
    """Whether there is a JVM, or one that is starting."""
    return _opened.starting is not None or _of_pyspark() is not None


def lacking(jars: tuple[str, ...]) -> tuple[str, ...]:
    """Those jars that do not lie on the JVM's class path."""
    return tuple(jar for jar in jars if jar not in _opened.jars)


def import_py4j() -> None:
    """Imports Py4J whole, in one thread; to be called before anything else imports it, PySpark too.

    Two of its modules import each other. Of two threads that import them at once, one gets a half of it, which knows no
    arrays yet.
    """
    with _importing:
        importlib.import_module("py4j.clientserver")


def gateway() -> Any:
    """Py4J's gateway to the JVM that was begun; waits for it.

    Raises:
        ConfigurationError: it did not start.
    """
    found = _of_pyspark()
    if found is not None:
        return found
    if _opened.gateway is None:
        _opened.gateway = _connect(_address())
    return _opened.gateway


@contextmanager
def known_to_pyspark() -> Iterator[None]:
    """Lets PySpark use the JVM that was begun instead of starting one; waits for it.

    Raises:
        ConfigurationError: it did not start.
    """
    if _of_pyspark() is not None:
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
    """Ends the JVM; another one may be begun."""
    of_pyspark = _of_pyspark()
    for each in (_opened.gateway, of_pyspark):
        if each is not None:
            each.shutdown()
    if of_pyspark is not None:
        context = sys.modules["pyspark"].SparkContext
        context._gateway, context._jvm = None, None
    _opened.starting, _opened.jars, _opened.gateway = None, (), None
    end_jvm()


def _address() -> Gateway:
    """What the JVM answered; where it failed instead, another one may be begun."""
    assert _opened.starting is not None, "no JVM was begun"
    try:
        return _opened.starting.result()
    except Exception:
        _opened.starting = None
        raise


def _of_pyspark() -> Any:
    """PySpark's gateway, where a session was made in this process."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(pyspark, "SparkContext", None)
    return None if context is None else context._gateway


def _connect(address: Gateway) -> Any:
    """As PySpark does it, which the JVM's side goes by, too."""
    import_py4j()
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import GatewayParameters, JavaGateway

    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true":
        java = JavaParameters(port=address.port, auth_token=address.secret, auto_convert=True)
        return ClientServer(java_parameters=java, python_parameters=PythonParameters(port=0, eager_load=False))
    return JavaGateway(
        gateway_parameters=GatewayParameters(port=address.port, auth_token=address.secret, auto_convert=True)
    )
