"""The tap's settings, all checked before anything is started.

It may import `dialects`. Start with `settings`.
"""
