"""Spark sessions: on this machine, on a cluster, on a Spark Connect server; and the jars they need.

Only `session` makes one. It may import `jvm` and what lies below. Start with `session`.
"""
