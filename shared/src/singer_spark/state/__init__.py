"""Where a pipeline's state is kept: in the lake, another folder, or a database.

Both programs find the state here, and what a dead run left of its own (`checkpoint`). It may import `storage`,
`singer` and what lies below. Start with `store`, then `backend` for the places there are, and `choice` for which copy
counts.
"""
