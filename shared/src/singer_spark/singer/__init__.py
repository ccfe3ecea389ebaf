"""Singer's protocol as both programs speak it: messages, bookmarks, keys, types. Plain Python except one mapping.

It may import `config` and the errors. Start with `messages`, then `bookmark`.
"""
