"""The frame around both programs: signals, errors as one line, the JVM's end, the exit code."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from singer_spark.core.lean_imports import leave_out_pandas
from singer_spark.core.scratch import remove_scratch
from singer_spark.core.signals import (
    Stopped,
    StoppedByError,
    end_after_signal,
    end_within,
    stop_on_signals,
    too_late_to_stop,
)
from singer_spark.core.stderr import claim_stderr, release_stderr
from singer_spark.core.stdout import claim_stdout
from singer_spark.engine.spark_jvm import end_jvm, jvm_failure, kill_jvm
from singer_spark.error_codes import RunCode
from singer_spark.errors import ResourceError, SingerSparkError, report, shortage


def run_program(
    main: Callable[[], int | None], program: str, *, if_stopped: str, grace_seconds: float = 5.0
) -> NoReturn:
    """Run `main` and exit with its exit code; an error or a signal becomes one line.

    Args:
        main: Returns the exit code; it imports everything heavy under `loading`, so that signals
            are handled from early on.
        program: The program's name.
        if_stopped: What the user should know after a signal.
        grace_seconds: How long it may clean up after a signal.

    Raises:
        SystemExit: always, except after a signal, when the process exits without waiting for
            running threads.
    """
    # Arrow's own allocator, mimalloc, keeps freed memory. These return it (jemalloc more of it) and
    # are no slower.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc" if _has_jemalloc() else "system")
    # Nothing here multiplies matrices: numpy, which Arrow loads, need not start threads for that.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_out_pandas()
    claim_stdout()
    claim_stderr()
    try:
        stop_on_signals(program, _at_once, if_stopped, grace_seconds)
        code = _run(main, program)
        too_late_to_stop()
    except (Stopped, KeyboardInterrupt) as stopped:
        # A KeyboardInterrupt comes from the handler that Spark installs over ours while it makes a
        # session.
        end_after_signal()
        if isinstance(stopped, StoppedByError):
            report(stopped.error, program)
        else:
            sys.stderr.write(
                f"{program}: stopped by {str(stopped) or signal.SIGINT.name}; {if_stopped}\n"
            )
        _end()
        os._exit(getattr(stopped, "exit_code", 128 + signal.SIGINT))
    _end()
    # Otherwise the interpreter looks for garbage among all that was loaded, twice, which takes a
    # quarter of a short run's CPU time.
    gc.freeze()
    # Threads that read ahead or work in the background may wait for something that never comes.
    end_within(grace_seconds, 1 if isinstance(code, str) else code or 0)
    sys.exit(code)


def _run(main: Callable[[], int | None], program: str) -> int | str | None:
    code: int | str | None
    output, failed = sys.stdout, False
    try:
        code = main()
    except (
        SystemExit
    ) as left:  # click exits like this when it meets a closed pipe, and puts a wrapper there
        sys.stdout, code = output, left.code
    except Exception as error:
        if stopped := stopped_before(error):
            raise stopped from error
        failed, code = True, report(root_failure(error), program)
    try:
        output.close()
    except OSError as error:
        return code if failed else report(root_failure(error), program)
    return code


def stopped_before(error: BaseException | None) -> Stopped | None:
    """The signal that led to an error while things were being closed; None: there was none."""
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error


def root_failure(error: Exception) -> Exception:
    """The error to report to the user: the cause rather than what it led to."""
    if isinstance(error, ResourceError):
        return error
    # A lost JVM explains all later failures.
    failure = jvm_failure()
    if failure is None and isinstance(error, BrokenPipeError):
        failure = ResourceError(
            RunCode.OUTPUT_CLOSED,
            "the reader of standard output is gone; check why the program that reads the pipe "
            "ended",
        )
    if failure is None and not isinstance(error, SingerSparkError):
        failure = shortage(error)
    if failure is None:
        return error
    failure.__cause__ = error
    return failure


def _at_once() -> None:
    kill_jvm()
    remove_scratch()


def _end() -> None:
    # Everything is reported; threads still waiting for the JVM would print tracebacks.
    logging.disable()
    end_jvm(for_good=True)
    remove_scratch()
    release_stderr()


def _has_jemalloc() -> bool:
    """Whether Arrow's wheel certainly has it: Arrow warns about an allocator that it lacks."""
    is_linux = sys.platform == "linux" and os.uname().machine == "x86_64"
    return is_linux and "CS_GNU_LIBC_VERSION" in os.confstr_names
