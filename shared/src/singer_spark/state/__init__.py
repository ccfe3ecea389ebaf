"""Storage of a pipeline's state: in the lake, another folder, or a database.

Both programs use it for the state, and for what a dead run left (`checkpoint`). It may import
`storage`, `singer` and what lies below. Start with `store`, then `backend` for the kinds of places,
and `choice` for which copy is valid.
"""
