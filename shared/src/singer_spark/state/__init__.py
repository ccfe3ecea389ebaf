"""Storage of a pipeline's state: in the lake, another folder, or a database.

Both programs use it for the state, and for what a dead run left. It may import `store` and the
layers below. Start with `store`, then `backend` for the kinds of locations, and `choice` for which
copy is valid.
"""
