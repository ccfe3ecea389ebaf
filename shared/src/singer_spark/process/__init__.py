"""This process on its machine: its signals, its standard output and error, its scratch folder, its
limits.

It may import the errors alone. Start with `signals`.
"""
