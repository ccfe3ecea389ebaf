"""`spark-lake verify`: compares source and lake, stream by stream, at the saved bookmarks, and
repairs differences.

It may import `formats` and the rooms below. Start with `verification`.
"""
