"""The frame of a program: how it starts, shows its progress, logs, fails and ends.

It may import every other package of this distribution. Start with `frame`, which wraps each
command; `progress` shows a run to its user.
"""
