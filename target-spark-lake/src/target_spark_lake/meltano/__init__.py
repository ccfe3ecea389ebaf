"""Meltano's state backend `lake+…`: it runs in Meltano's process, and loads neither Spark nor the
SDK.

It may import `commit` and the layers below. Start with `lake_backend`.
"""
