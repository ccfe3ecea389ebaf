"""Where a stream starts and ends in this run: bounds, slices, bookmark, and the progress of a dead
run.

It may import `plan` and what lies below. Start with `extraction`; `run_state` is the STATE of the
whole run.
"""
