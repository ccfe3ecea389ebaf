"""What both programs do with a config: variables, secrets, and one report of all that is wrong with it.

It may import `imports`, `process` and the errors. Start with `environment`.
"""
