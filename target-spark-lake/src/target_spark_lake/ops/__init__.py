"""The command `spark-lake`: commands, verify, report and init."""
