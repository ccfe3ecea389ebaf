"""Imports of large libraries without the parts that neither program uses, for a faster start.

It imports nothing of ours. Start with `singer_sdk_import`.
"""
