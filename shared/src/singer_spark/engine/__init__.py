"""Spark: the JVM, sessions and tasks."""
