"""The database: its driver, its connections, and what discovery asks of it.

It may import `config` and `dialects`. Start with `database`, then `discovery`.
"""
