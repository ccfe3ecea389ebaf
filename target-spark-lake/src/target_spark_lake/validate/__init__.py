"""Validation of records by their stream's JSON Schema."""
