"""`spark-lake`, the command for those who run pipelines, and `spark-lake init`.

It may import every room but `meltano`. Start with `spark_lake`; `parser` has its words and flags.
"""
