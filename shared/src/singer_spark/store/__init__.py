"""Buckets of every store, and the files in them."""
