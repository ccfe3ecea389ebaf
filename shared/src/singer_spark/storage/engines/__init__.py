"""Settings for other engines' access to a bucket, from the same `storage_options`: Hadoop's connectors, and delta-rs.

It may import `stores`. Start with `hadoop_conf`.
"""
