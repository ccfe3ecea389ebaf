"""Status and history of a bucket's pipelines, and the HTML page that shows them.

It may import `maintenance`, `formats` and the rooms below. Start with `pipeline_status`, or with
`page` for the HTML.
"""
