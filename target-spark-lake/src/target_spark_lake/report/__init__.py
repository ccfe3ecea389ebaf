"""What the bucket knows of its pipelines: their status, their history, and the page that shows it.

It may import `maintenance`, `formats` and what lies below. Start with `pipeline_status`, or with
`report_command` for the page.
"""
