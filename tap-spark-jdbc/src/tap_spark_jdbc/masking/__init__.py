"""What stands in a masked column's place: one definition for every reader, and for rows that come from a log.

It imports nothing of the tap. Start with `mask`.
"""
