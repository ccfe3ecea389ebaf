"""The saved state: which pipeline it belongs to, where a run must start, what a run makes of it, how old it is.

Plain values: it imports nothing else of the target. Start with `saving`.
"""
