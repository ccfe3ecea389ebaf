"""What other engines are given of a bucket: its URL for Hadoop, and options of delta-rs.

It may import `stores`. Start with `delta_options`.
"""
