"""Imports of large libraries without those parts that neither program uses: a start pays only for what it needs.

It imports nothing of ours. Start with `stand_ins`.
"""
