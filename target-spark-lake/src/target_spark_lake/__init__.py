"""Loads Singer messages into a lake, exactly once. Start with `target`, then `load.load_run`."""
