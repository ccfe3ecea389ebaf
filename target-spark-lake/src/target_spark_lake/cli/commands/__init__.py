"""The commands, one per file: flags, help line, examples and action.

They may import all rooms that `cli` may. Start with `runs`.
"""
