"""Meltano's state backend `lake+…`: in Meltano's process, without Spark and the SDK.

It may import `commit` and the layers below. Start with `lake_backend`.
"""
