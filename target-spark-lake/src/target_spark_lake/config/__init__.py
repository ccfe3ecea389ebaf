"""The target's settings: each is declared once, and all problems of a config are reported together.

It may import `table` and `layout`. Start with `settings`.
"""
