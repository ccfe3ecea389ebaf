"""The program `tap-spark-jdbc`: signals are handled before anything heavy is loaded."""

from __future__ import annotations

from singer_spark.core.signals import loading
from singer_spark.program.frame import run_program

PROGRAM = "tap-spark-jdbc"
# All that it leaves open is connections.
GRACE_SECONDS = 1.0


def main() -> None:
    """Run the command and exit."""
    run_program(
        _command,
        PROGRAM,
        if_stopped="what was sent is not a complete run",
        grace_seconds=GRACE_SECONDS,
    )


def _command() -> int:
    with loading():
        from tap_spark_jdbc.command_line import run
    return run()


if __name__ == "__main__":
    main()
