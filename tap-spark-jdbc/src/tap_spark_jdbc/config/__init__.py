"""The tap's settings, checked at once before anything is started.

It may import `dialects`. Start with `settings`; `config_schema` declares each of them.
"""
