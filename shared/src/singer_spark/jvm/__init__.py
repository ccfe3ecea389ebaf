"""Spark's JVM as a child process: choice of Java, command line, connection, end.

No session is made here, and PySpark is not imported. It may import `config`, `process` and the
errors. Start with `spark_jvm`; `command` builds the command line, `gateway` connects Python to the
JVM.
"""
