"""What makes a record invalid, and what becomes of it: fast checks first, jsonschema has the last word.

It may import `tables` and `columns`. Start with `bulk_check`; what it doubts, `record_validator` judges.
"""
