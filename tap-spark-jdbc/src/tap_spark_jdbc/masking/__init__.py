"""Masks of columns: one definition for every reader, and for rows from a log.

It imports nothing of the tap. Start with `mask`.
"""
