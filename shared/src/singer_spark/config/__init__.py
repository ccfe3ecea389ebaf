"""Handling of configs in both programs: variables, secrets, and one report of all problems.

It may import `imports`, `process` and the errors. Start with `environment`.
"""
