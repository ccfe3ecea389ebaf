"""Singer's protocol as both programs speak it: messages, bookmarks, keys, types, and the columns of
a lake.

It may import `config` and the errors. Start with `messages`, then `bookmark`.
"""
