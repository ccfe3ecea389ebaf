"""Entry point of `target-spark-lake`.

Installs the signal handlers before loading anything heavy.
"""

from __future__ import annotations

from singer_spark.core.lean_imports import import_singer_sdk
from singer_spark.core.signals import loading
from singer_spark.program.frame import run_program

PROGRAM = "target-spark-lake"


def main() -> None:
    """Run the command and exit the process."""
    run_program(_command, PROGRAM, if_stopped="nothing was published")


def _command() -> int:
    with loading():
        import_singer_sdk()
        from target_spark_lake.target import run
    return run()


if __name__ == "__main__":
    main()
