"""The commands, a file each: its flags, its help line, its examples and what it does.

They may import all rooms that `cli` may. Start with `runs`.
"""
