"""The database: its driver, its connections, and discovery.

It may import `config` and `dialects`. Start with `database`, then `discovery`.
"""
