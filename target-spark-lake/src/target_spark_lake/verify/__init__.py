"""`spark-lake verify`: source and lake compared, stream by stream, at the saved bookmarks. It only reads.

It may import `formats` and what lies below. Start with `verification`.
"""
