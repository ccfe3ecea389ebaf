"""Spark's JVM as a process of ours: which Java, which command, how it is reached, how it ends.

No session is made here, and PySpark is not imported. It may import `config`, `process` and the errors. Start with
`spark_jvm`; `command` says how the JVM is started, `gateway` how Python talks to it.
"""
