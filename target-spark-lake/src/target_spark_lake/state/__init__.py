"""The saved state: its pipeline, the start of a run, the state after a run, and its age.

Plain values: it imports nothing else of the target. Start with `saving`.
"""
