"""Slices on their way: read ahead, as lines in a spool or as batch files.

Their columns, errors and edges.

It may import `snapshot` and what lies below. Start with `slices_ahead`; `edges` tracks the rows at
a run's bookmark and upper bound, `spool` and `batch_place` are where rows go.
"""
