"""What makes a record invalid, and what becomes of it: fast checks first, jsonschema has the last word.

It may import `tables` and `columns`. Start with `record_validator`; `bulk_check` and `record_check` find the suspects.
"""
