"""Where a stream starts and ends in this run: bounds, slices, bookmark, and what of a dead run still counts.

It may import `plan` and what lies below. Start with `extraction`; `run_state` is the STATE of the whole run.
"""
