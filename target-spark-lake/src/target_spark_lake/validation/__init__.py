"""Validation of records and quarantine: fast checks first, jsonschema decides doubtful cases.

It may import `tables` and `columns`. Start with `bulk_check`; `record_validator` judges what it
doubts.
"""
