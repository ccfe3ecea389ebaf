"""Two threads reach the JVM at once, one over Py4J, one by a session: both have all of Py4J."""

from __future__ import annotations

import subprocess
import sys

# One thread is held inside of `py4j.java_gateway` until another one, inside of
# `py4j.java_collections`, waits for it. Then the first one wants that module, and as neither can
# wait Python gives it a half of it.
MEETING = """
import importlib, sys, threading
from singer_spark.engine import gateway as jvm_gateway
from singer_spark.engine import session as spark_session
from singer_spark.engine.spark_settings import SparkOptions

inside, outside = threading.Event(), threading.Event()
first = threading.current_thread()

def hold(event, arguments):
    if event == "import" and arguments[0] == "py4j.signals":
        inside.set()
        waits = importlib._bootstrap._blocking_on
        while not (outside.is_set() or "py4j.java_gateway" in repr(waits)):
            outside.wait(0.01)
        sys.setswitchinterval(60)  # the first thread continues alone, up to where it looks

class Asked:
    # The lock; its waiter is outside, and nothing need wait for it.
    lock = threading.Lock()
    def __enter__(self):
        if threading.current_thread() is not first:
            outside.set()
        self.lock.acquire()
    def __exit__(self, *_):
        self.lock.release()

def make_session():
    inside.wait()
    try:
        spark_session.get_session(SparkOptions("tap", "local[1]", None, {}, ()))
    except Exception as error:
        assert "no JVM here" in str(error), error

def no_jvm():
    raise RuntimeError("no JVM here")

sys.addaudithook(hold)
jvm_gateway._importing = Asked()
spark_session.begin_jvm = lambda options: None
jvm_gateway.known_to_pyspark = no_jvm
session = threading.Thread(target=make_session)
session.start()
jvm_gateway.import_py4j()  # as for whoever asks for the gateway
known = set(sys.modules["py4j.protocol"].OUTPUT_CONVERTER)
session.join()
assert "t" in known, f"no arrays among {sorted(known)}"
assert known == set(sys.modules["py4j.protocol"].OUTPUT_CONVERTER)
"""


def test_concurrent_threads_import_all_of_py4j() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEETING], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
