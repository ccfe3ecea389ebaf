"""A table of the lake: its record, files, partitions and index."""
